"""What is done about an instance, and what is understood of what it says of itself."""

import random
from dataclasses import replace

import pytest

from runtime.instances.engine_load import EngineLoad, NoExposition, read_load, samples_of
from runtime.instances.health import (
    Condition,
    Patience,
    Seen,
    State,
    Step,
    after_probe,
    next_step,
)

PATIENCE = Patience(
    start_s=100, unwell_s=20, drain_s=30, stop_s=5, first_retry_s=1, longest_retry_s=8, proven_s=50
)
WELL, ILL = "", "/health answers 500"


class Life:
    """An instance whose clock and process the test plays."""

    def __init__(self) -> None:
        self.state, self.now_s, self.wanted = State(), 0.0, True
        self.steps: list[Step] = []

    def see(self, seen: Seen, *, after_s: float = 1.0) -> Step:
        self.now_s += after_s
        self.state, step = next_step(
            self.state, seen, wanted=self.wanted, patience=PATIENCE, now_s=self.now_s
        )
        self.steps.append(step)
        return step

    def to_ready(self) -> None:
        assert self.see(Seen()) is Step.START
        assert self.see(Seen(trouble=WELL)) is Step.NOTHING
        assert self.state.condition is Condition.READY


def test_it_is_started_once_and_ready_when_it_answers_well() -> None:
    life = Life()
    assert life.see(Seen()) is Step.START
    for _ in range(10):
        assert life.see(Seen(trouble="it does not answer")) is Step.NOTHING
        assert life.state.condition is Condition.STARTING
    life.see(Seen(trouble=WELL))
    assert life.state.condition is Condition.READY
    assert life.state.message == ""


def test_one_bad_answer_is_no_illness_and_three_in_a_row_are() -> None:
    life = Life()
    life.to_ready()
    for trouble in (ILL, ILL, WELL, ILL, ILL):
        life.see(Seen(trouble=trouble))
        assert life.state.condition is Condition.READY
    life.see(Seen(trouble=ILL))
    assert life.state.condition is Condition.UNWELL
    life.see(Seen(trouble=WELL))
    assert life.state.condition is Condition.READY


def test_one_that_never_gets_well_is_killed_and_its_log_is_told() -> None:
    life = Life()
    life.see(Seen())
    life.see(Seen(trouble=ILL), after_s=99)
    assert life.see(Seen(trouble=ILL, last_words="CUDA out of memory"), after_s=2) is Step.KILL
    assert life.see(Seen(trouble=ILL)) is Step.NOTHING
    life.see(Seen(ended="killed by signal 9", last_words="CUDA out of memory"))
    assert life.state.condition is Condition.WAITING
    assert "not well 100 s after its start (/health answers 500)" in life.state.message
    assert life.state.message.endswith("its log ends: CUDA out of memory")


def test_one_that_stays_unwell_is_killed_and_started_again() -> None:
    life = Life()
    life.to_ready()
    for _ in range(3):
        life.see(Seen(trouble=ILL))
    assert life.see(Seen(trouble=ILL), after_s=21) is Step.KILL
    life.see(Seen(ended="killed by signal 9"))
    assert life.see(Seen(), after_s=2) is Step.START


def test_one_that_is_too_busy_to_say_how_it_is_goes_on_while_it_gives_tokens() -> None:
    life = Life()
    life.to_ready()
    for _ in range(100):
        assert life.see(Seen(trouble=ILL, produced_s=life.now_s - 2)) is Step.NOTHING
    assert life.state.condition is Condition.UNWELL  # and nobody new is sent there
    last_s = life.now_s
    assert life.see(Seen(trouble=ILL, produced_s=last_s), after_s=19) is Step.NOTHING
    assert life.see(Seen(trouble=ILL, produced_s=last_s), after_s=2) is Step.KILL


def test_the_wait_before_another_start_doubles_and_is_forgotten_after_a_good_while() -> None:
    life, waits = Life(), []
    for _ in range(6):
        assert life.see(Seen()) is Step.START
        life.see(Seen(ended="exited with status 1"), after_s=0)
        waits.append(life.state.retry_s - life.now_s)
        assert life.see(Seen(), after_s=waits[-1] - 0.1) is Step.NOTHING
    assert waits == pytest.approx([1, 2, 4, 8, 8, 8])
    life.see(Seen())
    life.see(Seen(trouble=WELL))
    life.see(Seen(trouble=WELL), after_s=51)
    life.see(Seen(ended="exited with status 1"))
    assert life.state.retry_s - life.now_s == pytest.approx(1)


def test_it_is_drained_before_it_is_asked_to_stop() -> None:
    life = Life()
    life.to_ready()
    life.wanted = False
    for _ in range(20):
        assert life.see(Seen(trouble=WELL, requests=2)) is Step.NOTHING
        assert life.state.condition is Condition.DRAINING
    assert life.see(Seen(trouble=WELL, requests=0)) is Step.TERMINATE
    life.see(Seen(ended="exited with status 0"))
    assert life.state.condition is Condition.IDLE


def test_draining_has_an_end_and_so_has_stopping() -> None:
    life = Life()
    life.to_ready()
    life.wanted = False
    life.see(Seen(requests=1))
    assert life.see(Seen(requests=1), after_s=30) is Step.TERMINATE
    assert life.see(Seen(requests=1), after_s=5) is Step.NOTHING
    assert life.see(Seen(requests=1), after_s=1) is Step.KILL


def test_what_is_wanted_again_while_it_drains_goes_on() -> None:
    life = Life()
    life.to_ready()
    life.wanted = False
    life.see(Seen(requests=1))
    life.wanted = True
    assert life.see(Seen(trouble=WELL, requests=1)) is Step.NOTHING
    assert life.state.condition is Condition.READY


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_it_is_started_only_when_nothing_runs_and_ends_when_not_wanted(
    seed: int,
) -> None:
    chance, life, runs = random.Random(seed), Life(), False
    for _ in range(400):
        life.wanted = chance.random() < 0.7 if chance.random() < 0.2 else life.wanted
        ended = runs and chance.random() < 0.1
        runs = runs and not ended
        seen = Seen(
            trouble=chance.choice([WELL, ILL]) if runs else None,
            ended="exited with status 1" if ended else None,
            requests=chance.randint(0, 2),
        )
        step = life.see(seen, after_s=chance.choice([0.1, 1.0, 40.0]))
        assert step is not Step.START or (life.wanted and not runs)
        assert runs or step in (Step.START, Step.NOTHING)
        runs = runs or step is Step.START
        if step is Step.KILL:  # a kill works
            runs = False
            life.see(Seen(ended="killed by signal 9"), after_s=0.0)
        expected = runs or life.state.condition in (Condition.IDLE, Condition.WAITING)
        assert expected, life.state
    life.wanted = False
    for _ in range(3):
        life.see(Seen(), after_s=40)
    if runs:
        assert life.steps[-1] in (Step.KILL, Step.TERMINATE)


def test_a_server_that_is_not_ours_is_only_judged() -> None:
    state = State(condition=Condition.STARTING)
    for _ in range(5):
        state = after_probe(state, ILL, patience=PATIENCE, now_s=1)
        assert state.condition is Condition.STARTING
    state = after_probe(state, WELL, patience=PATIENCE, now_s=2)
    assert state == replace(State(condition=Condition.READY), since_s=2)


V1 = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="meta/Llama \\"3\\""} 7.0
vllm:num_requests_running{engine="1",model_name="meta/Llama \\"3\\""} 2.0
vllm:num_requests_waiting{engine="0",model_name="x"} 1.0
vllm:kv_cache_usage_perc{engine="0",model_name="x"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="x"} 0.5
vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="1000"} 1.0
vllm:cache_config_info{block_size="16",engine="1",num_gpu_blocks="1000"} 1.0
vllm:e2e_request_latency_seconds_bucket{le="+Inf",model_name="x"} 3.0 1700000000000
"""
V0 = """\
vllm:num_requests_running{model_name="x"} 3.0
vllm:num_requests_swapped{model_name="x"} 0.0
vllm:num_requests_waiting{model_name="x"} 0.0
vllm:gpu_cache_usage_perc{model_name="x"} 0.75
vllm:cache_config_info{block_size="16",num_gpu_blocks="None"} 1.0
"""


def test_the_names_of_both_versions_are_read_over_all_engines_of_a_server() -> None:
    assert read_load(V1) == EngineLoad(running=9, waiting=1, kv_usage=0.5, kv_room_tokens=32000)
    assert read_load(V1).requests == 10
    assert read_load(V0) == EngineLoad(running=3, waiting=0, kv_usage=0.75)


def test_a_version_that_nobody_knows_is_told_and_nothing_is_guessed() -> None:
    load = read_load(V1.replace("kv_cache_usage_perc", "kv_fill"))
    assert load.kv_usage is None
    assert load.running == 9
    assert "vllm:kv_cache_usage_perc or vllm:gpu_cache_usage_perc" in load.complaint


@pytest.mark.parametrize("value", ["37.5", "-0.1", "NaN", "+Inf"])
def test_a_usage_that_is_no_share_is_told_and_not_believed(value: str) -> None:
    load = read_load(V0.replace("0.75", value))
    assert load.kv_usage is None
    assert "no share" in load.complaint


def test_a_count_that_counts_nothing_is_told_and_not_believed() -> None:
    load = read_load(V0.replace("} 3.0", "} NaN"))
    assert load.running is None
    assert "counts nothing" in load.complaint


@pytest.mark.parametrize("blocks", ["9" * 5000, "9" * 400, "-1", "None", ""])
def test_a_room_that_is_no_number_of_tokens_is_not_believed(blocks: str) -> None:
    load = read_load(V0.replace('"None"', f'"{blocks}"'))
    assert load == EngineLoad(running=3, waiting=0, kv_usage=0.75)


@pytest.mark.parametrize(
    "page",
    ["<html>502 Bad Gateway</html>", "vllm:x{a=1} 2", "vllm:x 1 2 3", 'x{a="b} 1', "x", "x y"],
)
def test_what_is_no_metrics_page_is_told(page: str) -> None:
    with pytest.raises(NoExposition, match="line 1"):
        samples_of(page, ["none"])
    assert "cannot be read" in read_load(page).complaint


def test_of_a_long_page_only_the_lines_are_read_that_say_how_full_it_is() -> None:
    others = "vllm:ttft_bucket{le='vllm:num_requests_running 1'} broken, and nobody minds\n"
    load = read_load(others * 40_000 + V1.replace("vllm:kv_cache", " \tvllm:kv_cache", 1) + others)
    assert load == read_load(V1)


def test_a_line_that_is_read_is_read_strictly_and_told_by_its_number() -> None:
    broken = V1.replace('vllm:kv_cache_usage_perc{engine="0"', "vllm:kv_cache_usage_perc{engine=0")
    number = broken.split("\n").index(
        next(line for line in broken.split("\n") if "engine=0" in line)
    )
    assert f"line {number + 1} has broken labels" in read_load(broken).complaint


def test_a_name_that_comes_more_often_than_engines_can_is_told() -> None:
    page = "".join(f'vllm:num_requests_running{{engine="{one}"}} 1\n' for one in range(1025))
    assert "more than 1024 lines of vllm:num_requests_running" in read_load(page).complaint
    assert read_load(page.split("\n", 1)[1]).running == 1024


def test_a_name_that_another_begins_with_is_not_that_one() -> None:
    assert read_load(V0 + "vllm:num_requests_running_total 7\n") == read_load(V0)


def test_labels_are_unescaped() -> None:
    page = 'a:b_total{x="1, {2} \\"3\\" \\\\ \\n", y="",} 4e3'
    (sample,) = samples_of(page, ["a:b_total"])
    assert sample.labels == {"x": '1, {2} "3" \\ \n', "y": ""}
    assert sample.value == 4000


@pytest.mark.parametrize("seed", range(5))
def test_damaged_pages_are_read_or_refused_and_never_break_anything(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(200):
        damaged = list(V1)
        for _ in range(chance.randint(1, 8)):
            damaged[chance.randrange(len(damaged))] = chance.choice('{}"\\\n,= 0eN\x00é')
        load = read_load("".join(damaged))
        assert load.kv_usage is None or 0 <= load.kv_usage <= 1
