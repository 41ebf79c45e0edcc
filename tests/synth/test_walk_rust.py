"""What the Rust walker sees."""

import pytest

from synth.records import Kind, Observation, Role, When
from synth.walk.rust import RustIndex, rust_role, walk_rust


def walk(source: str, file: str = "src/lib.rs", **others: str) -> list[Observation]:
    files = {file: source.encode(), **{f"src/{name}.rs": text.encode() for name, text in others.items()}}
    return walk_rust(files[file], file, Role.LIBRARY, index=RustIndex.build(files))


def reads(seen: list[Observation]) -> dict[str, Observation]:
    return {o.name: o for o in seen if o.kind is Kind.ENV_READ}


def of(seen: list[Observation], kind: Kind) -> list[tuple[str, str | None]]:
    return [(o.name, o.value) for o in seen if o.kind is kind]


@pytest.mark.parametrize(
    ("code", "default", "kind"),
    [
        ('fn f() -> usize { std::env::var("A_N").unwrap().parse().unwrap() }', None, "int"),
        ('fn f() { let n = env::var("A_N").ok().and_then(|v| v.parse::<usize>().ok()).unwrap_or(8); }', "8", "int"),
        ('fn f() { env::var("A_N").map(|v| v.parse::<u64>().unwrap()).unwrap_or_else(|_| 2 + 2); }', "4", "int"),
        ('fn f() { env::var("A_N").map_or(16, |x| x.parse::<usize>().unwrap()); }', "16", "int"),
        ('fn f() -> bool { match env::var("A_N") { Ok(v) => v == "1", Err(_) => true } }', "true", "bool"),
        ('fn f() -> bool { std::env::var_os("A_N").is_some() }', None, "bool"),
        ('fn f() -> usize { if let Ok(v) = env::var("A_N") { v.parse::<usize>().unwrap() } else { 4 } }', "4", "int"),
        ('fn f() -> usize { if let Ok(v) = env::var("A_N") { return v.parse().unwrap(); }\n 1 << 10 }', "1024", "int"),
        ('fn f() { let mut n: usize = 7; if let Ok(v) = env::var("A_N") { n = v.parse().unwrap(); } }', "7", "int"),
        (
            'fn f() -> f64 { let Ok(v) = env::var("A_N") else { return 0.5 }; v.parse::<f64>().unwrap() }',
            "0.5",
            "float",
        ),
        ('use std::env::var;\nfn f() -> String { var("A_N").unwrap_or("auto".to_string()) }', '"auto"', "str"),
        ('const NAME: &str = "A_N";\nfn f() { std::env::var(NAME).unwrap_or_default(); }', '""', None),
        (
            'const D: usize = 64 * DEEP;\nconst DEEP: usize = 1_024;\nfn f() { env::var("A_N").map_or(D, |v| 1); }',
            "D",
            None,
        ),
        (
            (
                "const DEFAULT: usize = 64 * UNIT;\nconst UNIT: usize = 1_024;\n"
                'fn f() { env::var("A_N").map_or(DEFAULT, |v| v.parse::<usize>().unwrap()); }'
            ),
            "65536",
            "int",
        ),
        ('fn f() { env::var(concat!("A_", "N")).ok(); }', None, None),
    ],
)
def test_reads(code, default, kind):
    seen = reads(walk(code))["A_N"]
    assert (seen.value, seen.value_type) == (default, kind)


def test_wrappers_across_files():
    seen = reads(
        walk(
            """
            use crate::helper::env_or;
            fn f() -> usize { env_or("A_THREADS", 4) + limit::<u64>("B_LIMIT").unwrap_or(2) as usize }
            fn g() { let get = |key: &str| std::env::var(key).ok(); get("C_SIZE"); }
            fn h() { read_env!("D_JOBS", 3); prefixed("CHUNK"); outer("E_OUTER"); two(1.0, "F_LOW", "F_HIGH"); }
            """,
            helper="""
            pub fn env_or(name: &str, default: usize) -> usize {
                std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
            }
            pub fn limit<T: FromStr>(name: &'static str) -> Option<T> { std::env::var(name).ok()?.parse().ok() }
            macro_rules! read_env {
                ($name:expr, $default:expr) => {
                    std::env::var($name).ok().and_then(|v| v.parse::<usize>().ok()).unwrap_or($default)
                };
            }
            fn prefixed(key: &str) -> Option<String> { std::env::var(format!("X_{key}")).ok() }
            fn outer(name: &str) -> bool { prefixed_free(name).is_some() }
            fn prefixed_free(name: &str) -> Option<String> { std::env::var(name).ok() }
            fn two(rate: f64, low: &str, high: &str) { std::env::var(low).ok(); std::env::var(high).ok(); }
            """,
        )
    )
    assert {n: (o.value, o.value_type) for n, o in seen.items()} == {
        "A_THREADS": ("4", "int"),
        "B_LIMIT": ("2", "int"),
        "C_SIZE": (None, None),
        "D_JOBS": ("3", "int"),
        "X_CHUNK": (None, "str"),
        "E_OUTER": (None, "bool"),
        "F_LOW": (None, None),
        "F_HIGH": (None, None),
    }


def test_tables_loops_and_composed_names():
    seen = reads(
        walk(
            """
            const MAX: &str = "P_MAX_THREADS";
            const SIZE: &str = "P_SIZE";
            const DEFAULT_SIZE: u64 = 100;
            const KNOWN: &[&str] = &[MAX, SIZE, "P_MODE"];
            fn reload() { for name in KNOWN { apply(name, std::env::var(name).ok()); } }
            fn apply(name: &str, value: Option<String>) {
                match name {
                    MAX => set(value.and_then(|v| v.parse::<u64>().ok()).unwrap_or(8)),
                    SIZE => set(value.and_then(|v| v.parse::<u64>().ok()).unwrap_or(DEFAULT_SIZE)),
                    _ => {},
                }
            }
            fn any() { ["Q_FIRST", "Q_SECOND"].iter().find_map(|v| std::env::var(v).ok()); }
            """
        )
    )
    assert set(seen) == {"P_MAX_THREADS", "P_SIZE", "P_MODE", "Q_FIRST", "Q_SECOND"}
    assert (seen["P_MAX_THREADS"].value, seen["P_SIZE"].value, seen["P_SIZE"].value_type) == ("8", "100", "int")


def test_names_that_a_macro_composes():
    files = {
        "src/macros.rs": b"""
macro_rules! group {
    ({ $( $(#[$meta:meta])* ref $name:ident : $type:ty = $value:expr; )+ }) => {
        $( std::env::var(concat!("LIB_", upper!(module_path!()), "_", upper!(stringify!($name)))).ok(); )+
    };
}
""",
        "src/pool.rs": b"group!({\n    /// N.\n    ref num_threads: usize = 4;\n    ref spin: bool = true;\n});\n",
    }
    seen = reads(walk_rust(files["src/pool.rs"], "src/pool.rs", Role.LIBRARY, index=RustIndex.build(files)))
    assert {n: (o.value, o.value_type, o.line) for n, o in seen.items()} == {
        "LIB_POOL_NUM_THREADS": ("4", "int", 3),
        "LIB_POOL_SPIN": ("true", "bool", 4),
    }


def test_attributes_of_fields():
    seen = reads(
        walk(
            '#[derive(Parser)]\nstruct S { #[arg(long, env = "A_JOBS", default_value = "4")] jobs: usize,\n'
            " #[arg(env)] depth: u32 }"
        )
    )
    assert {n: (o.value, o.value_type) for n, o in seen.items()} == {"A_JOBS": ('"4"', "int"), "DEPTH": (None, "int")}


def test_chain():
    seen = reads(walk('fn f() { env::var("A_N").or_else(|_| env::var("B_N")).unwrap_or("x".into()); }'))
    assert seen["A_N"].chain == seen["B_N"].chain != ""
    assert (seen["A_N"].order, seen["B_N"].order) == (0, 1)
    assert seen["A_N"].value == '"x"'


def test_when():
    seen = reads(
        walk(
            """
            static N: LazyLock<usize> = LazyLock::new(|| helper("IN_STATIC"));
            lazy_static! { static ref M: String = std::env::var("IN_LAZY").unwrap(); }
            fn once() -> usize { static C: OnceLock<usize> = OnceLock::new(); *C.get_or_init(|| read_once()) }
            fn read_once() -> usize { std::env::var("IN_ONCE").unwrap().parse().unwrap() }
            fn handed() -> usize { std::env::var("HANDED").unwrap().parse().unwrap() }
            static H: LazyLock<usize> = LazyLock::new(handed);
            #[pymodule]
            fn ext(m: &Bound<PyModule>) -> PyResult<()> { std::env::var("AT_IMPORT").ok(); setup(); Ok(()) }
            fn setup() { std::env::var("FROM_IMPORT").ok(); }
            #[pyfunction]
            fn run() { std::env::var("PER_CALL").ok(); }
            const V: Option<&str> = option_env!("AT_BUILD");
            fn helper(name: &str) -> usize { std::env::var(name).unwrap().parse().unwrap() }
            """
        )
    )
    assert {n: o.when for n, o in seen.items()} == {
        "IN_STATIC": When.FIRST_USE,
        "IN_LAZY": When.FIRST_USE,
        "IN_ONCE": When.FIRST_USE,
        "HANDED": When.FIRST_USE,
        "AT_IMPORT": When.IMPORT,
        "FROM_IMPORT": When.IMPORT,
        "PER_CALL": When.CALL,
        "AT_BUILD": When.BUILD,
    }


def test_comments_texts_and_tests_are_no_reads():
    seen = walk(
        """
        // std::env::var("IN_COMMENT")
        /* std::env::var("IN_BLOCK") */
        const S: &str = "std::env::var(\\"IN_TEXT\\")";
        const V: &str = env!("CARGO_PKG_VERSION");
        #[cfg(test)]
        mod tests { fn t() { std::env::var("IN_TESTS").unwrap(); } }
        #[test]
        fn t() { std::env::var("IN_TEST").unwrap(); }
        """
    )
    assert seen == []


def test_bounds_are_noted():
    seen = reads(
        walk('fn f() { env::var("A_N").ok().and_then(|v| v.parse::<usize>().ok()).unwrap_or(4).clamp(1, 64); }')
    )
    assert seen["A_N"].detail == "clamp(1, 64)"


def test_writes():
    seen = walk(
        'fn f() { std::env::set_var("A_N", "2"); Command::new("x").env("B_N", "3"); std::env::remove_var("C_N"); }'
    )
    assert [(o.name, o.value, o.target) for o in seen if o.kind is Kind.ENV_WRITE] == [
        ("A_N", '"2"', "process"),
        ("B_N", '"3"', "child"),
        ("C_N", None, "process"),
    ]


def test_pools_probes_idle_and_forks():
    seen = walk(
        """
        fn f(n: usize) {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(n).build().unwrap();
            let rt = tokio::runtime::Builder::new_multi_thread().worker_threads(2).max_blocking_threads(512).build();
            let own = tokio::runtime::Runtime::new();
            for _ in 0..n { std::thread::spawn(run); }
            let cpus = std::thread::available_parallelism();
            std::hint::spin_loop();
            unsafe { libc::pthread_atfork(None, None, Some(child)) };
            let quota = std::fs::read("/sys/fs/cgroup/cpu.max");
        }
        fn g(v: &[u32]) { v.par_iter().for_each(h); }
        """
    )
    assert sorted(of(seen, Kind.POOL)) == [
        ("rayon parallel iterator", None),
        ("rayon::ThreadPoolBuilder", "n"),
        ("std::thread::spawn", "n"),
        ("tokio::runtime::Builder", "2"),
        ("tokio::runtime::Runtime", None),
    ]
    assert {n for n, _ in of(seen, Kind.CPU_PROBE)} == {"std::thread::available_parallelism", "/sys/fs/cgroup/cpu.max"}
    assert of(seen, Kind.IDLE) == [("spin_loop", "spin")]
    assert of(seen, Kind.FORK) == [("pthread_atfork", None)]


def test_python_functions_and_classes():
    seen = walk(
        """
        #[pyclass(name = "Model", module = "pkg.models")]
        pub struct PyModel {}
        impl Default for Builder { fn default() -> Self { Self { cache_capacity: CAPACITY, x: 1, } } }
        const CAPACITY: usize = 10_000;
        #[pymethods]
        impl PyModel {
            #[new]
            #[pyo3(signature = (path, n_threads=4, **kwargs))]
            fn new(path: &str, n_threads: usize, kwargs: Option<&Bound<'_, PyDict>>) -> Self { Self::build(kwargs) }
            fn _resize_cache(&self, capacity: usize) {}
            #[setter]
            fn set_num_threads(&mut self, n: usize) {}
            #[getter]
            fn num_threads(&self) -> usize { 1 }
            #[pyo3(signature = (texts, batch_size = 32))]
            fn encode(&self, texts: Vec<String>, batch_size: usize) {}
        }
        impl PyModel {
            fn build(kwargs: Option<&Bound<'_, PyDict>>) -> Self {
                for (key, value) in kwargs { match key { "cache_capacity" => set(value), "unk" => {}, _ => {} } }
            }
        }
        #[pyfunction]
        fn set_parallelism(value: bool) {}
        #[pymodule]
        fn pkg(m: &Bound<PyModule>) {}
        """
    )
    assert of(seen, Kind.PARAM) == [
        ("pkg.models.Model(cache_capacity=)", "10000"),
        ("pkg.models.Model(n_threads=)", "4"),
        ("pkg.models.Model.encode(batch_size=)", "32"),
    ]
    assert {n for n, _ in of(seen, Kind.API_SET)} == {
        "pkg.models.Model._resize_cache",
        "pkg.models.Model.num_threads",
        "pkg.set_parallelism",
    }
    assert {n for n, _ in of(seen, Kind.API_GET)} == {"pkg.models.Model.num_threads"}


@pytest.mark.parametrize(
    "source",
    [
        b'fn f() { std::env::var("A_N").unwrap(); (((((((',
        b'\xef\xbb\xbffn f() { std::env::var("A_N").unwrap(); }',
        b'fn f() { std::env::var("A_N").unwrap(); } // \xff\xfe \0',
        b'fn f() { std::env::var("A_N").unwrap(); }\nfn g() { let x = ' + b"(" * 3_000 + b"1" + b")" * 3_000 + b"; }",
        b'fn f() { std::env::var("A_N").unwrap(); }\n' + b"mod a { " * 400 + b"}" * 400,
        b'macro_rules! m { ($($t:tt)*) => {\nfn f() { std::env::var("A_N").unwrap(); }',
    ],
)
def test_hostile_sources(source):
    assert "A_N" in reads(walk_rust(source, "m.rs", Role.LIBRARY)) or b"macro_rules" in source


@pytest.mark.parametrize(
    ("path", "role"),
    [("crates/x/benches/b.rs", Role.BENCHMARK), ("crates/x/build.rs", Role.BUILD), ("src/lib.rs", Role.LIBRARY)],
)
def test_roles(path, role):
    assert rust_role(path) is role
