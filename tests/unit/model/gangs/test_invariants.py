"""Whatever happens to gangs and their hosts, in whatever order: none is lost, and none runs twice."""

import contextlib

from hypothesis import given
from hypothesis import strategies as st

from fpga_pool.model.exceptions import InvalidTransition
from fpga_pool.model.objects.gangs import Gang

HOSTS = ["h0", "h1"]
number = st.integers(0, 7)
host = st.sampled_from(HOSTS)
some = st.sampled_from([1, 2, 1000])
#: Steps that make progress are more frequent than disturbances.
steps = st.one_of(
    st.tuples(
        st.just("create"), st.integers(1, 4), st.sampled_from([10.0, 100.0, 5000.0]), st.sampled_from([0.3, 0.6, 1.0])
    ),
    *[st.tuples(st.just("plan"))] * 3,
    st.tuples(st.just("look")),
    st.tuples(st.just("commit late"), number),
    *[st.tuples(st.just("deliver"), host, some)] * 3,
    *[st.tuples(st.just("work"), host)] * 3,
    *[st.tuples(st.just("tell"), host, some)] * 3,
    *[st.tuples(st.just("exit"), host, number)] * 2,
    st.tuples(st.just("die"), host, number, st.booleans()),
    st.tuples(st.just("cancel"), number),
    st.tuples(st.just("beat"), host),
    st.tuples(st.just("go away"), host),
    st.tuples(st.just("come back"), host),
    st.tuples(st.just("lose"), host),
    st.tuples(st.just("time"), st.sampled_from([0.5, 20.0, 3000.0])),
)


class Walk:
    def __init__(self, pool):
        self.pool = pool
        self.looked = []

    def take(self, step):
        kind, *arguments = step
        getattr(self, kind.replace(" ", "_"))(*arguments)
        self.pool.check()

    def create(self, processes, runtime_s, cpu_usage):
        if self.pool.gangs < 8:
            self.pool.create(processes, runtime_s, cpu_usage)

    def plan(self):
        self.pool.plan()

    def look(self):
        if (view := self.pool.look()) is not None:
            self.looked.append((view, self.pool.decide(view)))

    def commit_late(self, number):
        if self.looked:
            self.pool.commit(*self.looked[number % len(self.looked)])

    def deliver(self, host, most):
        self.pool.deliver(host, most)

    def work(self, host):
        self.pool.work(host)

    def tell(self, host, most):
        self.pool.tell(host, most)

    def exit(self, host, number):
        self.pool.hosts[host].exit(number)

    def die(self, host, number, told):
        self.pool.hosts[host].die(number, told=told)

    def cancel(self, number):
        if gangs := sorted(gang.uuid for gang in self.pool.store.all(Gang)):
            with contextlib.suppress(InvalidTransition):
                self.pool.cancel(gangs[number % len(gangs)])

    def beat(self, host):
        self.pool.hear(host)

    def go_away(self, host):
        self.pool.hosts[host].away = True

    def come_back(self, host):
        self.pool.hosts[host].away = False
        self.pool.hear(host)

    def lose(self, host):
        """Have a host declared lost, which happens only to a silent one."""
        self.go_away(host)
        self.pool.tick(host)

    def time(self, seconds):
        self.pool.now_s += seconds
        self.pool.tick()


@given(
    walk=st.lists(steps, min_size=15, max_size=70),
    policy=st.sampled_from(
        ["measy_plus", "measy_plus:trial_s=20,trial_share=1,last_runs=1", "measy", "keasy", "reasy", "easy"]
    ),
)
def test_gangs_keep_their_invariants_through_any_walk_and_come_to_their_end(new_gang_pool, walk, policy):
    walker = Walk(new_gang_pool(policy=policy))
    for step in walk:
        walker.take(step)
    walker.pool.end()
