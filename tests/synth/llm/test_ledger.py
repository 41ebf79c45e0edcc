"""The ledger: what is counted, what it costs, and that no limit is ever passed."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from synth.llm.ledger import Ledger, Refused, Reservation
from synth.llm.outcome import Usage
from synth.llm.prices import FREE, TEMPLATE, Price, Prices, read_prices
from synth.records import SynthError

PRICES = Prices(currency="EUR", models={"m": Price(input=2, output=10, cached_input=1)})


def hold(ledger, tokens=(100, 50), library="demo", task="control", model="m"):
    return ledger.reserve(library, task, model, input_tokens=tokens[0], output_tokens=tokens[1])


def test_what_a_usage_costs():
    price = Price(input=2, output=10, cached_input=0.5)
    assert price.of(Usage(input=1_000_000, output=100_000, cached=400_000)) == pytest.approx(1.2 + 0.2 + 1.0)
    assert price.of(Usage(unsure=1_000_000)) == 10
    assert Price(input=2, output=10).of(Usage(input=1_000_000, cached=1_000_000)) == 2
    assert FREE.of(Usage(input=10, output=10, unsure=5)) == 0


def test_accounts_by_library_and_task():
    ledger = Ledger(PRICES)
    for library, task in (("a", "control"), ("a", "pool"), ("b", "control")):
        ledger.settle(hold(ledger, library=library, task=task), Usage(input=10, output=5), retry=False)
        ledger.asked(library, task, failed=library == "b")
    report = ledger.report()
    assert report.libraries["a"].requests == 2
    assert report.tasks["control"].usage == Usage(input=20, output=10)
    assert report.libraries["b"].failures == 1
    assert report.total.cost == pytest.approx(3 * (10 * 2 + 5 * 10) / 1e6)
    assert report.lines()[-1].startswith("total: 3 questions, 3 requests (0 retries), 0 replayed, 1 failed; 30 + 15")
    assert "EUR" in report.lines()[0]


def test_failed_attempts_count():
    ledger = Ledger(PRICES)
    ledger.settle(hold(ledger), Usage(input=100, output=50), retry=False)
    ledger.settle(hold(ledger), Usage(), retry=True)  # refused by the server: free
    ledger.settle(hold(ledger), None, retry=True)  # broken off: may have been charged
    total = ledger.report().total
    assert (total.requests, total.retries) == (3, 2)
    assert total.usage == Usage(input=100, output=50, unsure=150)
    assert total.cost == pytest.approx(2 * (100 * 2 + 50 * 10) / 1e6)
    assert "up to 150 of broken requests" in ledger.report().lines()[-1]


def test_limits_hold_for_what_is_on_its_way():
    ledger = Ledger(PRICES, max_tokens=400)
    first, second = hold(ledger), hold(ledger)
    refused = hold(ledger)
    assert isinstance(refused, Refused)
    assert refused.message == "the next request may need 150 tokens; 300 of 400 are used or held"
    ledger.settle(first, Usage(input=20, output=10), retry=False)
    ledger.release(second)
    assert isinstance(hold(ledger), Reservation)


def test_a_limit_of_cost():
    ledger = Ledger(PRICES, max_cost=0.001)
    first = hold(ledger)
    assert isinstance(first, Reservation)
    assert first.cost == pytest.approx(0.0007)
    assert hold(ledger).message.startswith("the next request may cost 0.0007 EUR; 0.0007 of 0.001")
    assert isinstance(hold(ledger, (10, 10)), Reservation)


def test_an_unknown_price_is_said():
    ledger = Ledger(PRICES)
    ledger.settle(hold(ledger, model="x"), Usage(input=10, output=5), retry=False)
    report = ledger.report()
    assert report.unknown_prices == ("x",)
    assert report.total.unpriced == 15
    assert report.lines()[-1] == "price not known: x"
    assert "15 tokens without a price" in report.lines()[0]
    limited = Ledger(PRICES, max_cost=100)
    assert "the price of `x` is not known" in hold(limited, model="x").message


def test_nothing_is_booked_twice():
    ledger = Ledger(PRICES)
    held = hold(ledger)
    ledger.settle(held, Usage(input=10, output=5), retry=False)
    ledger.settle(held, Usage(input=10, output=5), retry=False)
    assert ledger.report().total.requests == 1


def test_a_report_can_be_read_back():
    ledger = Ledger(PRICES, max_tokens=5)
    report = ledger.report()
    assert type(report).model_validate_json(report.model_dump_json()) == report


@given(
    st.lists(st.tuples(st.integers(1, 500), st.integers(1, 500), st.floats(0, 1), st.booleans()), max_size=30),
    st.integers(1, 5000),
)
def test_no_limit_is_ever_passed(requests, limit):
    ledger = Ledger(PRICES, max_tokens=limit, max_cost=limit / 1e6)
    for sent, got, used, counted in requests:
        held = hold(ledger, (sent, got))
        if isinstance(held, Reservation):
            real = Usage(input=int(sent * used), output=int(got * used)) if counted else None
            ledger.settle(held, real, retry=False)
        total = ledger.report().total
        assert total.usage.total <= limit
        assert total.cost <= limit / 1e6 + 1e-12


def test_threads_do_not_pass_a_limit_together():
    ledger = Ledger(PRICES, max_tokens=10_000)
    start = threading.Barrier(8)

    def work():
        start.wait()
        for _ in range(50):
            held = hold(ledger)
            if isinstance(held, Reservation):
                ledger.settle(held, Usage(input=held.input_tokens, output=held.output_tokens), retry=False)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert ledger.report().total.usage.total == 9_900


# ------------------------------------------------------------------- prices


def test_prices_of_a_file(tmp_path):
    path = tmp_path / "prices.toml"
    path.write_text('currency = "EUR"\n[models."a/b:c"]\ninput = 0.5\noutput = 1\n')
    prices = read_prices(path)
    assert prices.of("a/b:c") == Price(input=0.5, output=1)
    assert prices.of("other") is None
    assert read_prices(None) == read_prices(tmp_path / "none.toml") == Prices()


def test_the_template_is_a_file_of_prices(tmp_path):
    path = tmp_path / "prices.toml"
    path.write_text(TEMPLATE)
    assert read_prices(path) == Prices()
    path.write_text(TEMPLATE.replace("# [", "[").replace("# input", "input").replace("# output", "output"))
    assert read_prices(path).models["name of the model"] == Price(input=1, output=4)


@pytest.mark.parametrize(
    "text", ["[models.m]\ninput = -1\noutput = 1\n", "[models.m]\ninput = 1\n", "x = 1\n", "[", "[models]\nm = 3\n"]
)
def test_files_that_hold_no_prices(tmp_path, text):
    path = tmp_path / "prices.toml"
    path.write_text(text)
    with pytest.raises(SynthError, match="holds no prices"):
        read_prices(path)


def test_a_folder_holds_no_prices(tmp_path):
    with pytest.raises(SynthError, match="cannot read"):
        read_prices(tmp_path)
