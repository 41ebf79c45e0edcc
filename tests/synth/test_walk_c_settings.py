"""Settings that C and C++ code, bindings and tables declare."""

import json

import pytest

from synth.records import Kind, Observation, Role
from synth.walk.arithmetic import evaluated
from synth.walk.c_family import CIndex, walk_c
from synth.walk.tables import walk_table


def walk(source: str, file: str = "pkg/m.cpp", **others: str) -> list[Observation]:
    files = {file: source.encode(), **{f"src/{name}.h": text.encode() for name, text in others.items()}}
    return walk_c(files[file], file, Role.LIBRARY, index=CIndex.build(files))


def of(seen: list[Observation], kind: Kind) -> list[tuple[str, str | None]]:
    return [(o.name, o.value) for o in seen if o.kind is kind]


def test_parameter_macros():
    seen = walk(
        """
        struct P : public dmlc::Parameter<P> {
          DMLC_DECLARE_PARAMETER(P) {
            // DMLC_DECLARE_FIELD(in_a_comment).set_default(1);
            DMLC_DECLARE_FIELD(nthread).set_default(0).set_lower_bound(0).describe("Number of threads.");
            DMLC_DECLARE_ALIAS(nthread, n_jobs);
            DMLC_DECLARE_FIELD(cache_size).set_default(Size(2, 3)).describe("A (b) c");
          }
        };
        """
    )
    assert sorted(of(seen, Kind.OPTION)) == [("cache_size", "Size(2, 3)"), ("n_jobs", "0"), ("nthread", "0")]
    assert any("lower_bound(0)" in o.detail for o in seen)


def test_flags_and_options():
    seen = walk(
        """
        DEFINE_int32(num_workers, 8, "workers");
        ABSL_FLAG(bool, use_pool, true, "pool");
        static cl::opt<unsigned> Depth("tile-depth", cl::init(3), cl::desc("x"));
        """
    )
    assert [(o.name, o.value, o.value_type) for o in seen if o.kind is Kind.OPTION] == [
        ("num_workers", "8", "int"),
        ("use_pool", "true", "bool"),
        ("tile-depth", "3", "int"),
    ]


def test_structures_and_keys():
    seen = walk(
        """
        struct ThreadsSetting {
            using RETURN_TYPE = int64_t;
            static constexpr const char *Name = "threads";
            static constexpr const char *Description = "The number of threads";
            static constexpr const char *InputType = "BIGINT";
            static constexpr const char *DefaultValue = "4";
        };
        struct Other { static constexpr const char *Name = "other"; };
        struct Function {
            static constexpr const char *Name = "concat_chunks";
            static constexpr const char *Parameters = "a,b";
            static constexpr const char *Description = "A function";
        };
        static const char* const kSpin = "session.intra_op.allow_spinning";
        static constexpr const char* kBlock = "session.dynamic_block_base";
        static const char* const kFile = "readme.txt";
        """
    )
    assert [(o.name, o.value, o.value_type) for o in seen if o.kind is Kind.OPTION] == [
        ("threads", "4", "int"),
        ("session.intra_op.allow_spinning", None, None),
        ("session.dynamic_block_base", None, None),
    ]


def test_parameters_asked_for_by_name():
    seen = walk(
        """
        void Config::Set(const Map& params) {
            GetInt(params, "num_threads", &num_threads);
            GetBool(params, "use_cache", &use_cache);
            GetDouble(params, "rate", &config_.rate);
            GetInt(params, "seed", &other);
        }
        std::map<string, string> n = {{"nthread", "num_threads"}, {"n_jobs", "num_threads"}, {"cached", "use_cache"}};
        """,
        config="struct Config {\n  int num_threads = 0;\n  bool use_cache = true;\n  double rate = 0.1;\n};",
        other="struct Other {\n  int num_threads = 9;\n};",
    )
    assert of(seen, Kind.OPTION) == [
        ("num_threads", "0"),
        ("use_cache", "true"),
        ("rate", "0.1"),
        ("cached", "true"),
        ("n_jobs", "0"),
        ("nthread", "0"),
    ]


def test_bindings_with_their_defaults():
    seen = walk(
        """
        PYBIND11_MODULE(ext, m) {
            m.def("run", &run, py::arg("data"), py::arg("num_threads") = 4, "chunk_size"_a = 64);
            py::class_<Options>(m, "Options")
                .def(py::init<int>(), py::arg("n_jobs").none(false) = -1)
                .def_readwrite("intra_op_num_threads", &Options::intra)
                .def_property_readonly("num_workers", &Options::workers)
                .def_readwrite("title", &Options::title);
        }
        """
    )
    assert sorted(of(seen, Kind.PARAM)) == [
        ("pkg.ext.Options(n_jobs=)", "-1"),
        ("pkg.ext.run(chunk_size=)", "64"),
        ("pkg.ext.run(num_threads=)", "4"),
    ]
    assert of(seen, Kind.API_SET) == [("pkg.ext.Options.intra_op_num_threads", None)]
    assert of(seen, Kind.API_GET) == [("pkg.ext.Options.num_workers", None)]


def test_readers_whose_body_is_elsewhere():
    seen = walk(
        """
        bool f() { return c10::utils::check_env("A_USE_POOL"); }
        int g() { return ReadIntEnv("B_NUM_THREADS", 4); }
        auto h() { return ParseEnvironmentVariableWithDefault<int>("C_SIZE", 7); }
        void i() { environment("notaname"); env.Add("D_E", 1); event("E_F"); }
        """
    )
    assert [(o.name, o.value, o.value_type) for o in seen if o.kind is Kind.ENV_READ] == [
        ("A_USE_POOL", None, "bool"),
        ("B_NUM_THREADS", "4", "int"),
        ("C_SIZE", "7", "int"),
    ]


def test_affinity_and_files_of_the_machine():
    seen = walk(
        'void f() { sched_setaffinity(0, sizeof(m), &m); open("/sys/fs/cgroup/cpu.max"); log("/sys/fs other"); }'
    )
    assert of(seen, Kind.POOL) == [("sched_setaffinity", None)]
    assert of(seen, Kind.CPU_PROBE) == [("/sys/fs/cgroup/cpu.max", None)]


def test_a_long_chain_of_bindings_takes_linear_time():
    chain = '.def("f", &f, py::arg("n_jobs") = 1)' * 1_000
    seen = walk(f'PYBIND11_MODULE(a, m) {{ py::class_<X>(m, "X"){chain}; }}')
    assert len(of(seen, Kind.PARAM)) == 1_000


def test_json_tables():
    table = [
        {"name": "threads", "description": "Threads.", "type": "BIGINT", "scope": "global", "aliases": ["workers"]},
        {"name": "pool", "description": "Pool.", "type": "BOOLEAN", "default_value": "true"},
        {"name": "no setting"},
    ]
    seen = walk_table(json.dumps({"all": table}, indent=1).encode(), "pkg/settings.json", Role.LIBRARY)
    assert [(o.name, o.value, o.value_type) for o in seen] == [
        ("threads", None, "int"),
        ("workers", None, "int"),
        ("pool", "true", "bool"),
    ]
    assert seen[0].line == 4


def test_toml_and_ini_files():
    toml = walk_table(b"[pool]\nworkers = 4\nspin = true\n[pool.io]\nsize = 2\n", "pkg/defaults.toml", Role.LIBRARY)
    assert [(o.name, o.value, o.line) for o in toml] == [
        ("pool.workers", "4", 2),
        ("pool.spin", "true", 3),
        ("pool.io.size", "2", 5),
    ]
    ini = walk_table(b"[pool]\nworkers = 4\n", "pkg/config.ini", Role.LIBRARY)
    assert [(o.name, o.value) for o in ini] == [("pool.workers", "4")]


@pytest.mark.parametrize(
    ("raw", "file"),
    [
        (b"{", "settings.json"),
        (b"[" * 100_000, "settings.json"),
        (b"\xff\xfe", "settings.json"),
        (b"= = =", "config.toml"),
        (b"[[[", "config.ini"),
        (b'[{"name": 1, "type": 2, "description": 3}, {"name": null}]', "options.json"),
    ],
)
def test_tables_that_cannot_be_read(raw, file):
    assert walk_table(raw, file, Role.LIBRARY) == []


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("64 * 1024", "65536"),
        ("1 << 20", "1048576"),
        ("10_000usize", "10000"),
        ("4u64 * 1024 as u64", "4096"),
        ("0x10UL", "16"),
        ("-1", "-1"),
        ("7 / 2", "3"),
        ("0.5f32", "0.5"),
        ("2.", "2.0"),
        ("n * 2", "n * 2"),
        ("1 << 4000", "1 << 4000"),
        ("9**9**9", "9**9**9"),
        ("(" * 110 + "1" + ")" * 5, "(" * 110 + "1" + ")" * 5),
        ("", ""),
    ],
)
def test_constant_expressions(text, value):
    assert evaluated(text) == value
