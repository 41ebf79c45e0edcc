"""Settings: which source wins, what is refused, and where a key may go."""

import json

import pytest
from pydantic import ValidationError

from synth.llm.config import DEFAULT_BASE_URL, LlmConfig, load
from synth.records import SynthError

KEY = "sk-secret-abcdefgh"


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(text, mode=0o600):
        path = tmp_path / "syspilot.toml"
        path.write_text(text)
        path.chmod(mode)
        return path

    return write


def secret(config):
    return config.api_key.get_secret_value()


def test_without_anything(file):
    config = load({}, environ={})
    assert (config.base_url, secret(config), config.model) == (DEFAULT_BASE_URL, "", "")


@pytest.mark.parametrize("flag", [None, "flag"])
@pytest.mark.parametrize("in_file", [None, "file"])
@pytest.mark.parametrize("outside", [None, "outside"])
def test_flags_win_over_the_file_over_the_environment(file, flag, in_file, outside):
    if in_file:
        file(f'[llm]\nmodel = "{in_file}"\n')
    config = load({"model": flag}, environ={"OPENAI_MODEL": outside} if outside else {})
    assert config.model == (flag or in_file or outside or "")


def test_all_from_the_environment(file):
    environ = {"OPENAI_BASE_URL": "https://llm.example/v1/", "OPENAI_API_KEY": KEY, "OPENAI_MODEL": "m"}
    config = load({}, environ=environ)
    assert (config.base_url, secret(config), config.model) == ("https://llm.example/v1", KEY, "m")


def test_the_file_s_table(file):
    file(
        '[tune]\nx = 1\n[llm]\nmodel = "m"\ntries = 2\nmodels = {contract = "strong"}\n'
        'prices = "prices.toml"\ncache = "rec"\nmax_cost = 1.5\n'
    )
    config = load({}, environ={})
    assert (config.tries, config.max_cost) == (2, 1.5)
    assert (config.model_for("contract"), config.model_for("pool")) == ("strong", "m")
    assert config.prices.name == "prices.toml"


def test_paths_are_relative_to_the_file(tmp_path):
    (tmp_path / "syspilot.toml").write_text('[llm]\ncache = "rec"\n')
    assert load({}, file=tmp_path / "syspilot.toml", environ={}).cache == tmp_path / "rec"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[llm]\ntries = 0\n", "`tries` of the model's settings (file)"),
        ("[llm]\nretries = 3\n", "`retries`"),
        ('[llm]\nbase_url = "ftp://x"\n', "`base_url`"),
        ('[llm]\nbase_url = "https://user:pw@x/v1"\n', "without user"),
        ('[llm]\nbase_url = "https://x/v1?key=abc"\n', "without user"),
        ('[llm]\nmodels = {poetry = "m"}\n', "`models.poetry"),
        ("llm = 3\n", "is not a table"),
        ("[llm\n", "is not TOML"),
        ("[llm]\nconnect_s = 900\n", "connect_s is longer"),
    ],
)
def test_what_is_wrong_in_a_file(file, text, words):
    file(text)
    with pytest.raises(SynthError) as caught:
        load({}, environ={})
    assert words in str(caught.value)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(SynthError, match="no such file"):
        load({}, file=tmp_path / "no.toml", environ={})
    (tmp_path / "big.toml").write_bytes(b"#" * (2 << 20))
    with pytest.raises(SynthError, match="larger than"):
        load({}, file=tmp_path / "big.toml", environ={})
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(SynthError, match="not TOML in UTF-8"):
        load({}, file=tmp_path / "bytes.toml", environ={})


# ------------------------------------------------------------------- keys


def test_a_key_in_a_private_file(file):
    file(f'[llm]\napi_key = "{KEY}"\nbase_url = "https://llm.example/v1"\n')
    assert secret(load({}, environ={"OPENAI_API_KEY": "other"})) == KEY


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604])
def test_a_key_in_a_file_that_others_can_read(file, mode):
    file(f'[llm]\napi_key = "{KEY}"\n', mode)
    with pytest.raises(SynthError, match="can be read by others") as caught:
        load({}, environ={})
    assert KEY not in str(caught.value) + caught.value.help


def test_a_key_by_the_name_of_its_variable(file):
    assert secret(load({"api_key_env": "MY_KEY"}, environ={"MY_KEY": KEY, "OPENAI_API_KEY": "x"})) == KEY
    with pytest.raises(SynthError, match="`MY_KEY`, which should hold the key, is not set"):
        load({"api_key_env": "MY_KEY"}, environ={"OPENAI_API_KEY": KEY})


STRANGER = '[llm]\nbase_url = "https://stranger.example/v1"\n'


@pytest.mark.parametrize("text", [STRANGER, STRANGER + 'api_key_env = "CLOUD_SECRET"\n'])
def test_a_key_of_the_environment_does_not_go_where_only_a_file_points(file, text):
    file(text)
    environ = {"OPENAI_API_KEY": KEY, "CLOUD_SECRET": KEY}
    with pytest.raises(SynthError, match=r"is not sent to `https://stranger\.example/v1`") as caught:
        load({}, environ=environ)
    assert KEY not in str(caught.value)
    assert load({"base_url": "https://mine.example/v1"}, environ=environ)
    assert load({"api_key": KEY}, environ=environ)
    assert load({"api_key_env": "CLOUD_SECRET"}, environ=environ)
    assert load({}, environ=environ | {"OPENAI_BASE_URL": "https://stranger.example/v1/"})
    assert load({}, environ={}) if "api_key_env" not in text else True


@pytest.mark.parametrize("url", ["http://127.0.0.1:8000/v1", "http://[::1]:8000/v1", "http://localhost:1/v1"])
def test_a_file_may_point_at_this_machine(file, url):
    file(f'[llm]\nbase_url = "{url}"\n')
    config = load({}, environ={"OPENAI_API_KEY": KEY})
    assert config.is_loopback
    assert config.warning == ""


def test_a_key_without_encryption_is_warned_about():
    assert LlmConfig(base_url="http://box.example/v1", api_key=KEY).warning == (
        "the key goes to `http://box.example/v1` unencrypted"
    )
    assert LlmConfig(base_url="http://box.example/v1").warning == ""
    assert LlmConfig(base_url="https://box.example/v1", api_key=KEY).warning == ""


@pytest.mark.parametrize("key", ["a\nb", "a b", "schlüssel", "a\0"])
def test_a_key_that_is_no_header(file, key):
    with pytest.raises(SynthError) as caught:
        load({"api_key": key}, environ={})
    assert key not in str(caught.value)
    assert "visible ASCII" in str(caught.value)


def test_messages_do_not_quote_values(file):
    for values in ({"api_key": [KEY]}, {"tries": KEY}, {"base_url": f"https://{KEY}@x/v1"}):
        with pytest.raises(SynthError) as caught:
            load(values, environ={})
        assert KEY not in str(caught.value)
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__


def test_no_form_of_the_settings_shows_the_key():
    config = LlmConfig(api_key=KEY, model="m")
    shown = [
        repr(config),
        str(config),
        config.model_dump_json(),
        json.dumps(config.model_dump(mode="json")),
        f"{config}",
    ]
    assert [s for s in shown if KEY in s] == []
    assert config.redact(f"a {KEY} b") == "a [key] b"
    assert LlmConfig().redact("text") == "text"


def test_settings_do_not_change():
    with pytest.raises(ValidationError):
        LlmConfig().model = "x"


def test_what_stands_for_a_model():
    config = LlmConfig(base_url="https://a.example/v1", model="m", models={"pool": "p"})
    assert config.identity_for("control") == "https://a.example/v1 m"
    assert config.identity_for("pool") == "https://a.example/v1 p"
    assert LlmConfig(identity="gguf:1", model="local").identity_for("control") == "gguf:1 local"
