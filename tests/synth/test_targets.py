"""What a user may name, and what is refused with help."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from synth.records import SynthError, Target
from synth.targets import folder_identity, metadata_identity, parse_target, read_filename


@pytest.mark.parametrize(
    ("text", "name", "specifier"),
    [
        ("numexpr", "numexpr", ""),
        ("  numexpr \n", "numexpr", ""),
        ("numexpr==2.14.2", "numexpr", "==2.14.2"),
        ("numexpr == 2.14.2", "numexpr", "==2.14.2"),
        ("Scikit_Learn>=1.5", "scikit-learn", ">=1.5"),
        ("zope.interface~=7.0", "zope-interface", "~=7.0"),
        ("joblib[extra,more]==1.4.*", "joblib", "==1.4.*"),
        ("numpy (>=2)", "numpy", ">=2"),
        ('numpy>=2; python_version < "3"', "numpy", ">=2"),
        ("pkg===2004d", "pkg", "===2004d"),
    ],
)
def test_requirements(text, name, specifier):
    assert parse_target(text) == Target(text=text.strip(), name=name, specifier=specifier)


def test_several_specifiers_are_kept():
    assert set(parse_target("scikit-learn>1.4,<1.6").specifier.split(",")) == {">1.4", "<1.6"}


@pytest.mark.parametrize(
    ("text", "message", "help_part"),
    [
        ("", "the target is empty", "for example"),
        (" \t", "the target is empty", "for example"),
        ("a\0b", "the target holds a NUL", "for example"),
        ("two words", "`two words` is not a project, requirement or path", "for example"),
        ("numexpr=2.14", "`numexpr=2.14` is not a project, requirement or path", "write `numexpr==2.14`"),
        ("numexpr@2.14", "`numexpr@2.14` is not a requirement", "write `numexpr==2.14`"),
        ("numexpr==", "`numexpr==` is not a project, requirement or path", "for example"),
        ("naïve", "`naïve` is not a project, requirement or path", "for example"),
        ("--help", "`--help` is not a project, requirement or path", "for example"),
        ("./absent", "no file or folder `./absent`", "check the path"),
        ("absent-1.0.tar.gz", "no file or folder `absent-1.0.tar.gz`", "check the path"),
        ("x" * 5000 + " y", "`" + "x" * 200 + "...` is not a project, requirement or path", "for example"),
    ],
)
def test_nonsense_is_refused_with_help(text, message, help_part):
    with pytest.raises(SynthError) as caught:
        parse_target(text)
    assert str(caught.value) == message
    assert help_part in caught.value.help
    assert caught.value.code == 2


@pytest.mark.parametrize(
    "text",
    [
        "https://user:secret@example.org/a-1.0.tar.gz",
        "git+ssh://git@example.org/a",
        "git+file:///a",
        "file:///tmp/a-1.0.tar.gz",
        "a @ https://user:secret@example.org/a-1.0.tar.gz",
        "a@https://user:secret@example.org/a-1.0.tar.gz",
    ],
)
def test_urls_are_refused_without_showing_them(text):
    with pytest.raises(SynthError, match="URLs are not read") as caught:
        parse_target(text)
    assert "secret" not in str(caught.value) + caught.value.help
    assert "example.org" not in str(caught.value)
    assert "download the archive" in caught.value.help


@given(st.text(max_size=60))
def test_any_text_gives_a_target_or_a_clear_error(text):
    try:
        target = parse_target(text)
    except SynthError as error:
        assert error.help  # noqa: PT017 (either outcome is right)
    else:
        assert target.name


@pytest.mark.parametrize(
    "filename",
    [
        *("numexpr-2.14.2.tar.gz", "numexpr-2.14.2.zip", "numexpr-2.14.2.tgz", "numexpr-2.14.2.tar.xz"),
        "numexpr-2.14.2-cp311-cp311-manylinux_2_17_x86_64.whl",
    ],
)
def test_archives(tmp_path, monkeypatch, filename):
    (tmp_path / filename).write_bytes(b"")
    expected = {"name": "numexpr", "specifier": "==2.14.2"}
    target = parse_target(str(tmp_path / filename))
    assert target == Target(text=str(tmp_path / filename), path=tmp_path / filename, **expected)
    monkeypatch.chdir(tmp_path)
    assert parse_target(filename) == Target(text=filename, path=Path(filename), **expected)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert parse_target(f"~/{filename}").path == tmp_path / filename


@pytest.mark.parametrize(
    ("filename", "message"),
    [
        ("main.zip", "`main.zip` does not say which project and version it holds"),
        ("a-1.0-none.whl", "`a-1.0-none.whl` does not say which project and version it holds"),
        ("a-1.0.exe", "is not an archive that can be read"),
        ("a-1.0.tar.zst", "is not an archive that can be read"),
    ],
)
def test_files_that_are_no_release(tmp_path, filename, message):
    (tmp_path / filename).write_bytes(b"")
    with pytest.raises(SynthError) as caught:
        parse_target(str(tmp_path / filename))
    assert message in str(caught.value)
    assert caught.value.help


def test_a_bare_word_is_a_project_even_beside_a_folder_of_that_name(tmp_path, monkeypatch):
    (tmp_path / "numexpr").mkdir()
    monkeypatch.chdir(tmp_path)
    assert parse_target("numexpr").path is None
    assert parse_target("./numexpr") == Target(text="./numexpr", name="numexpr", path=Path("./numexpr"))


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, ("my-folder", "0")),
        ({"pyproject.toml": '[project]\nname = "Fast_Lib"\nversion = "1.0.0"'}, ("fast-lib", "1.0.0")),
        ({"pyproject.toml": '[tool.poetry]\nname = "poem"\nversion = "3"'}, ("poem", "3")),
        ({"pyproject.toml": '[project]\nname = "a"\ndynamic = ["version"]'}, ("a", "0")),
        (
            {"pyproject.toml": '[project]\nname = "a"\ndynamic = ["version"]', "PKG-INFO": "Name: A\nVersion: 2"},
            ("a", "2"),
        ),
        ({"pyproject.toml": '[project]\nname = "a"', "PKG-INFO": "Name: other\nVersion: 2"}, ("a", "0")),
        ({"PKG-INFO": "Metadata-Version: 2.1\nName: b\nVersion: 0.3rc1\n\nLong text"}, ("b", "0.3rc1")),
        ({"setup.cfg": "[metadata]\nname = c\nversion = 4"}, ("c", "4")),
        ({"setup.cfg": "[metadata]\nname = c\nversion = attr: c.__version__"}, ("c", "0")),
        ({"d-5.dist-info/METADATA": "Name: d\nVersion: 5"}, ("d", "5")),
        (
            {"d-5.dist-info/METADATA": "Name: d\nVersion: 5", "e-6.dist-info/METADATA": "Name: e\nVersion: 6"},
            ("my-folder", "0"),
        ),
        ({"pyproject.toml": "not = [toml", "setup.cfg": "no section"}, ("my-folder", "0")),
        ({"pyproject.toml": "a = " + "[" * 5000}, ("my-folder", "0")),
        ({"pyproject.toml": 'project = "odd"\ntool = 1'}, ("my-folder", "0")),
        ({"pyproject.toml": '[project]\nname = "../../etc"\nversion = "x y"'}, ("my-folder", "0")),
        ({"setup.py": "raise SystemExit"}, ("my-folder", "0")),
    ],
)
def test_folder_metadata_is_read_statically(tmp_path, files, expected):
    folder = tmp_path / "My Folder!"
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    folder.mkdir(exist_ok=True)
    assert folder_identity(folder) == expected
    assert parse_target(str(folder)).name == expected[0]


def test_metadata_that_is_no_plain_file_is_not_waited_for(tmp_path):
    import os

    os.mkfifo(tmp_path / "pyproject.toml")
    os.mkfifo(tmp_path / "PKG-INFO")
    assert folder_identity(tmp_path)[1] == "0"
    assert metadata_identity(tmp_path) == (None, None)


@pytest.mark.parametrize(
    "filename",
    [
        *("../a-1.0.tar.gz", "a-1.0.tar.gz/..", "a\\b-1.0.tar.gz", "a-1.0\0.tar.gz", "a" * 300 + "-1.0.tar.gz"),
        *("a.tar.gz", "a-.tar.gz", "-1.0.tar.gz", ".tar.gz", "a-x.tar.gz", "é-1.0.tar.gz"),
        *("a-1.0.rpm", "a-1.0.egg", "a-1.0-py3-none.whl"),
    ],
)
def test_filenames_that_name_no_release(filename):
    assert read_filename(filename) is None


def test_filenames_are_normalised():
    parsed = read_filename("Foo.Bar-baz-1.0.0.tar.bz2")
    assert parsed is not None
    assert (parsed.name, parsed.version, parsed.kind) == ("foo-bar-baz", Version("1.0.0"), "sdist")


def test_installed_distributions(tmp_path):
    from synth.installed import find_distribution, installed_release

    info = tmp_path / "site" / "demo_pkg-1.2.dist-info"
    info.mkdir(parents=True)
    (tmp_path / "site" / "demo").mkdir()
    (tmp_path / "site" / "demo" / "__init__.py").write_text("x = 1\n")
    (tmp_path / "site" / "other.py").write_text("y = 2\n")
    (tmp_path / "out.py").write_text("secret\n")
    (info / "RECORD").write_text(
        "demo/__init__.py,,\n../out.py,,\n/etc/passwd,,\ndemo/gone.py,,\ndemo_pkg-1.2.dist-info/RECORD,,\n"
    )
    for target in (parse_target("installed:demo.pkg"), parse_target(str(info))):
        assert target.installed
        assert find_distribution(target, [str(tmp_path / "site")]) == info
        release = installed_release(target, tmp_path / "work", [str(tmp_path / "site")])
        assert (release.name, release.version, release.kind) == ("demo-pkg", "1.2", "folder")
        files = sorted(p.relative_to(release.root).as_posix() for p in release.root.rglob("*") if p.is_file())
        assert files == ["demo/__init__.py", "demo_pkg-1.2.dist-info/RECORD"]
    with pytest.raises(SynthError, match="is not installed"):
        find_distribution(parse_target("installed:nothing-here"), [str(tmp_path)])
    with pytest.raises(SynthError, match="no name of a distribution"):
        parse_target("installed:../x")


@pytest.mark.parametrize("packed", [False, True])
def test_the_commit_of_a_checkout_is_its_version(tmp_path, packed):
    commit = "0123456789abcdef" * 2 + "01234567"
    git = tmp_path / "repo" / ".git"
    (git / "refs/heads").mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    if packed:
        (git / "packed-refs").write_text(f"# pack-refs\n{commit} refs/heads/main\n")
    else:
        (git / "refs/heads/main").write_text(commit + "\n")
    (tmp_path / "repo/pyproject.toml").write_text('[project]\nname = "demo"\ndynamic = ["version"]\n')
    assert folder_identity(tmp_path / "repo") == ("demo", f"0+g{commit[:12]}")
