"""Where to look is found as pip finds it, and local places are listed."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pypi_simple import PYPI_SIMPLE_ENDPOINT

from synth.indexes import (
    DEFAULT_INDEX_URL,
    IndexConfig,
    IndexSession,
    index_config,
    list_files,
    pip_config_files,
    pip_options,
)
from synth.records import SynthError

NO_FILES = {"PIP_CONFIG_FILE": os.devnull}
SHA = "ab" * 32


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_without_configuration_the_public_index_is_asked():
    assert index_config(environ=NO_FILES) == IndexConfig()
    assert IndexConfig().index_urls == (DEFAULT_INDEX_URL,) == (PYPI_SIMPLE_ENDPOINT.rstrip("/"),)


def test_environment(tmp_path):
    cert = write(tmp_path / "ca.pem", "")
    environ = NO_FILES | {
        "PIP_INDEX_URL": "https://main.example/simple",
        "PIP_EXTRA_INDEX_URL": "https://one.example/simple\n https://two.example/simple",
        "PIP_FIND_LINKS": f"{tmp_path} https://links.example/page.html",
        "PIP_CERT": str(cert),
        "PIP_DEFAULT_TIMEOUT": "2.5",
        "PIP_RETRIES": "1",
        "PIP_TRUSTED_HOST": "one.example two.example:8443",
        "PIP_PROXY": "http://proxy.example:3128",
    }
    assert index_config(environ=environ) == IndexConfig(
        index_urls=("https://main.example/simple", "https://one.example/simple", "https://two.example/simple"),
        find_links=(tmp_path.as_uri(), "https://links.example/page.html"),
        cert=str(cert),
        timeout_seconds=2.5,
        retries=1,
        trusted_hosts=("one.example", "two.example:8443"),
        proxy="http://proxy.example:3128",
    )


def test_arguments_replace_the_main_index_and_add_to_the_lists():
    environ = NO_FILES | {
        "PIP_INDEX_URL": "https://main.example/",
        "PIP_EXTRA_INDEX_URL": "https://one.example/",
        "PIP_FIND_LINKS": "https://links.example/",
    }
    config = index_config(
        index_url="https://mine.example/",
        extra_index_urls=["https://two.example/"],
        find_links=["https://more.example/"],
        environ=environ,
    )
    assert config.index_urls == ("https://mine.example/", "https://one.example/", "https://two.example/")
    assert config.find_links == ("https://links.example/", "https://more.example/")


@pytest.mark.parametrize(("value", "asked"), [("1", False), ("yes", False), ("False", True), ("off", True), ("", True)])
def test_no_index(value, asked):
    assert bool(index_config(environ=NO_FILES | {"PIP_NO_INDEX": value}).index_urls) is asked
    assert index_config(environ=NO_FILES, no_index=True).index_urls == ()


def machine(tmp_path: Path) -> dict[str, str]:
    """An environment whose files all lie below `tmp_path`, but for /etc."""
    home = tmp_path / "home"
    home.mkdir()
    return {"HOME": str(home), "VIRTUAL_ENV": str(tmp_path / "venv")}


def test_files_are_read_in_pips_order(tmp_path):
    environ, etc = machine(tmp_path), tmp_path / "etc"
    files = pip_config_files(environ, etc=etc)
    assert [str(file.relative_to(tmp_path)) for file in files] == [
        "etc/xdg/pip/pip.conf",
        "etc/pip.conf",
        "home/.pip/pip.conf",
        "home/.config/pip/pip.conf",
        "venv/pip.conf",
    ]
    for position, file in enumerate(files):
        write(file, f"[global]\nproxy = http://p{position}.example\nfile-{position} = yes\n")
        options = pip_options(environ, etc=etc)
        assert options["proxy"] == f"http://p{position}.example"
        assert options["file-0"] == "yes"
    explicit = write(tmp_path / "mine.conf", "[global]\nproxy = http://mine.example\n")
    options = pip_options(environ | {"PIP_CONFIG_FILE": str(explicit)}, etc=etc)
    assert options["proxy"] == "http://mine.example"
    # pip leaves the user's own files out where PIP_CONFIG_FILE exists.
    assert "file-1" in options
    assert "file-3" not in options
    assert "file-3" in pip_options(environ | {"PIP_CONFIG_FILE": str(tmp_path / "absent")}, etc=etc)
    assert pip_options(environ | NO_FILES, etc=etc) == {"config-file": os.devnull}


def test_sections_and_spellings(tmp_path):
    environ, etc = machine(tmp_path), tmp_path / "etc"
    write(
        etc / "pip.conf",
        "[install]\nindex_url = https://install.example\n[wheel]\nindex-url = https://no.example\n",
    )
    write(tmp_path / "home/.pip/pip.conf", "[global]\nINDEX-URL = https://global.example\n--no-index = no\n")
    assert pip_options(environ, etc=etc)["index-url"] == "https://install.example"
    write(tmp_path / "venv/pip.conf", "[download]\nindex-url = https://download.example\ndefault-timeout = 7\n")
    options = pip_options(environ, etc=etc)
    assert options["index-url"] == "https://download.example"
    assert options["timeout"] == "7"
    assert (
        pip_options(environ | {"PIP_INDEX_URL": "https://env.example"}, etc=etc)["index-url"] == "https://env.example"
    )
    # An empty variable changes nothing, an empty value in a later file takes an earlier one away.
    assert pip_options(environ | {"PIP_INDEX_URL": ""}, etc=etc)["index-url"] == "https://download.example"
    write(tmp_path / "venv/pip.conf", "[install]\nindex-url =\n")
    assert pip_options(environ, etc=etc)["index-url"] == "https://global.example"


def test_pip_itself_reads_the_same(tmp_path):
    pytest.importorskip("pip")
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("PIP_", "XDG_", "VIRTUAL"))}
    environ |= {
        "HOME": str(tmp_path / "home"),
        "XDG_CONFIG_DIRS": f"{tmp_path / 'xdg1'}{os.pathsep}{tmp_path / 'xdg2'}",
        "XDG_CONFIG_HOME": str(tmp_path / "user"),
        "PIP_FIND_LINKS": "https://env.example/links",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    write(tmp_path / "xdg1/pip/pip.conf", "[global]\nproxy = http://one\ntimeout = 1\n[install]\nretries = 1\n")
    write(
        tmp_path / "xdg2/pip/pip.conf",
        "[global]\nproxy = http://two\nextra-index-url =\n  https://a\n  https://b\n",
    )
    write(tmp_path / "home/.pip/pip.conf", "[global]\nretries = 3\ntrusted_host = old\nindex-url = https://old\n")
    write(
        tmp_path / "user/pip/pip.conf",
        "[global]\ntrusted-host = new\nfind-links = https://user\n[download]\nretries = 4\n",
    )
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], env=environ, capture_output=True, text=True, check=True
    ).stdout
    sections: dict[str, dict[str, str]] = {name: {} for name in ("global", "install", "download", ":env:")}
    for line in listed.splitlines():
        key, _, value = line.partition("=")
        section, _, option = key.partition(".")
        sections.setdefault(section, {})[option] = ast.literal_eval(value)
    expected = sections["global"] | sections["install"] | sections["download"] | sections[":env:"]
    assert expected["retries"] == "4"
    assert pip_options(environ) == expected


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"PIP_NO_INDEX": "maybe"}, "pip's option no-index is set to `maybe`"),
        ({"PIP_TIMEOUT": "soon"}, "pip's option timeout is set to `soon`"),
        ({"PIP_TIMEOUT": "0"}, "pip's option timeout is set to `0`"),
        ({"PIP_TIMEOUT": "nan"}, "pip's option timeout is set to `nan`"),
        ({"PIP_RETRIES": "-1"}, "pip's option retries is set to `-1`"),
        ({"PIP_CERT": "/no/such/file"}, "pip's option cert names `/no/such/file`, which does not exist"),
        ({"PIP_INDEX_URL": "ftp://me:secret@x/simple"}, "a place is configured with `ftp:`, which is not read"),
        ({"PIP_INDEX_URL": "pypi.example/simple"}, "`pypi.example/simple` is neither a URL nor an existing path"),
    ],
)
def test_values_that_cannot_be_understood(environ, message):
    with pytest.raises(SynthError) as caught:
        index_config(environ=NO_FILES | environ)
    assert str(caught.value) == message
    assert caught.value.help
    assert caught.value.code == 2


@pytest.mark.parametrize("content", [b"index-url = https://me:secret@x", b"[global]\n\xff\xfe = 1", b"[a]\nx\n[a]"])
def test_a_damaged_file_is_named_without_its_content(tmp_path, content):
    file = tmp_path / "pip.conf"
    file.write_bytes(content)
    with pytest.raises(SynthError) as caught:
        index_config(environ={"PIP_CONFIG_FILE": str(file), "HOME": str(tmp_path)})
    assert f"`{file}` cannot be read" in str(caught.value)
    assert "PIP_CONFIG_FILE" in caught.value.help
    assert "secret" not in str(caught.value) + repr(caught.value.__cause__)


def test_credentials_are_in_no_representation():
    config = index_config(
        index_url="https://me:secret@x.example/simple",
        find_links=["https://me:secret@y.example/"],
        environ=NO_FILES | {"PIP_PROXY": "http://me:secret@proxy.example"},
    )
    assert "secret" not in repr(config) + str(config)


def listing(config: IndexConfig, name: str = "demo", *, offline: bool = True):
    with IndexSession(config) as session:
        return list_files(name, config, session, offline=offline)


def test_a_local_simple_index(tmp_path):
    write(
        tmp_path / "simple/demo/index.html",
        f'<a href="../../files/demo-1.0.tar.gz#sha256={SHA.upper()}">any text</a>'
        '<a href="demo-2.0.tar.gz" data-yanked="broken">demo-2.0.tar.gz</a>'
        '<a href="https://files.example/demo-3.0-py3-none-any.whl">x</a>'
        '<a href="other-1.0.tar.gz">x</a><a href="demo-1.0.exe">x</a><a href="ftp://h/demo-4.0.tar.gz">x</a><a>x</a>',
    )
    write(tmp_path / "simple/bare/index.html", "")
    config = index_config(index_url=(tmp_path / "simple").as_uri(), environ=NO_FILES)
    found = listing(config)
    assert found.known
    assert not found.failures
    assert [(str(f.version), f.kind, f.yanked, f.source) for f in found.files] == [
        ("1.0", "sdist", False, "index"),
        ("2.0", "sdist", True, "index"),
        ("3.0", "wheel", False, "index"),
    ]
    assert found.files[0].digests == {"sha256": SHA}
    assert found.files[0].url == (tmp_path / "files/demo-1.0.tar.gz").as_uri()
    assert listing(config, "bare").known
    assert not listing(config, "absent").known
    # A plain path will do, as in pip.
    assert listing(index_config(index_url=str(tmp_path / "simple"), environ=NO_FILES)) == found


def test_find_links(tmp_path, monkeypatch):
    folder = tmp_path / "links #1"
    write(folder / "demo-1.0.tar.gz", "")
    write(folder / "other-1.0.tar.gz", "")
    write(folder / "notes.txt", "")
    write(folder / "demo-9.0.tar.gz/inside", "a folder of that name is no archive")
    write(folder / "more.html", '<a href="sub/demo-2.0-py3-none-any.whl#md5=00ff">x</a>')
    for place in (str(folder), folder.as_uri()):
        found = listing(index_config(no_index=True, find_links=[place], environ=NO_FILES))
        assert [f.filename for f in found.files] == ["demo-1.0.tar.gz", "demo-2.0-py3-none-any.whl"]
        assert found.files[0].url == (folder / "demo-1.0.tar.gz").as_uri()
        assert {f.source for f in found.files} == {"links"}
    page = listing(index_config(no_index=True, find_links=[str(folder / "more.html")], environ=NO_FILES))
    assert [dict(f.digests) for f in page.files] == [{"md5": "00ff"}]
    single = [f"{folder.as_uri()}/demo-1.0.tar.gz#sha256={SHA}", str(folder / "other-1.0.tar.gz")]
    archives = listing(index_config(no_index=True, find_links=single, environ=NO_FILES))
    assert [(f.filename, dict(f.digests)) for f in archives.files] == [("demo-1.0.tar.gz", {"sha256": SHA})]
    monkeypatch.setenv("HOME", str(tmp_path))
    assert len(listing(index_config(no_index=True, find_links=["~/links #1"], environ=NO_FILES)).files) == 2


def test_local_places_that_do_not_exist_are_reported(tmp_path):
    config = index_config(
        index_url=(tmp_path / "absent").as_uri(), find_links=[str(tmp_path / "gone")], environ=NO_FILES
    )
    found = listing(config)
    assert not found.known
    assert [failure.code for failure in found.failures] == [2, 2]
    assert "does not exist" in str(found.failures[0])
    assert "is no folder, HTML page or archive" in str(found.failures[1])
    remote = listing(IndexConfig(index_urls=("file://elsewhere.example/simple",)))
    assert "names another machine" in str(remote.failures[0])


def test_offline_asks_no_server():
    assert listing(IndexConfig(find_links=("https://links.example/",))) == listing(IndexConfig(index_urls=()))
