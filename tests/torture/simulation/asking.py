"""Requests of simulated clients: random, weighted towards those that interact."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from hetsched.policies import POLICIES
from libtask import messages as m
from torture.simulation.fault_profile import draw_needs
from torture.simulation.users import named
from torture.simulation.workers import ENDLESS

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from torture.simulation.clients import SimulatedClient
    from torture.simulation.fault_profile import FaultProfile

KINDS = ("cpu", "gpu", "fpga")
VERBS = ("cancel", "hold", "release", "snapshot")
CALLED = 0.5
"""Share of submits that a running task makes, where tasks call others."""
POLICIES_BY_NAME = sorted(POLICIES)


class Asking:
    """Draws what a client does next.

    Args:
        resources: names of the node's resources.
        needs: draws what tasks need; None: they need nothing.
        callers: draws which tasks are called by running ones; None: none is.

    """

    def __init__(
        self,
        chance: Random,
        profile: FaultProfile,
        resources: list[str],
        needs: Random | None = None,
        callers: Random | None = None,
    ) -> None:
        self._needs = needs
        self._callers = callers
        self._chance = chance
        self._profile = profile
        self._resources = resources
        self._keys = 0
        usual: list[tuple[int, Callable[[SimulatedClient], None]]] = [
            (10, self._submit),
            (3, self._control),
            (2, self._migrate),
            (2, self._list),
            (1, self._watch),
            (1, self._explain),
            (1, self._amend),
        ]
        self._usual = [call for weight, call in usual for _ in range(weight)]
        self._admins = [self._drain, self._policy, self._list, self._watch]

    def act(self, client: SimulatedClient) -> None:
        """Let a client do something; administrators drain and set policies."""
        choices = self._usual if client.user.uid else self._admins
        self._chance.choice(choices)(client)

    def _likely(self, probability: float) -> bool:
        return self._chance.random() < probability

    # ------------------------------------------------------------ submits

    def _submit(self, client: SimulatedClient) -> None:
        if client.user.unanswered and self._likely(0.7):
            client.submit(client.user.unanswered.pop(0))
            return
        self._keys += 1
        key = f"{client.user.uid}-{self._keys}"
        count = self._chance.choice((1, 1, 2, 3, 5))
        specs = [self._spec(client, position) for position in range(count)]
        caller = self._caller(client)
        if caller is not None:
            specs = [replace(spec, caller=caller) for spec in specs]
        request = m.Submit(request=0, tasks=named(key, specs), key=key)
        client.user.ask(request)
        client.submit(request)

    def _caller(self, client: SimulatedClient) -> m.TaskEpoch | None:
        """Choose one of the user's tasks that compute, whose code submits others; None: none."""
        chance = self._callers
        if chance is None or chance.random() >= CALLED:
            return None
        told = [worker.told for worker in client.user.records.workers]
        running = [each for each in told if each is not None]
        if not running:
            return None
        task, epoch, _ = chance.choice(running)
        return m.TaskEpoch(task, epoch)

    def _spec(self, client: SimulatedClient, position: int) -> m.TaskSpec:
        chance, profile = self._chance, self._profile
        size = chance.choice((1, 2, 4, 8))
        kinds: list[Any] = sorted(chance.sample(KINDS, chance.randint(1, 3)))
        if self._likely(0.7) or not self._possible(kinds):
            kinds = list(KINDS)
        limited = self._likely(profile.deadlines)
        params = self._params(kinds, size)
        spec = m.TaskSpec(
            "simulated",
            params,
            type=f"simulated/{size}",
            kinds=kinds,
            work=float(size),
            state_bytes=chance.choice((0, 0, 10**7)),
            priority=chance.choice((0, 0, 0, 1, -1)),
            after=self._after(client, position),
            hold=self._likely(0.05),
            deadline_s=chance.uniform(0.1, 20) if limited else None,
            overrun="stop" if limited and self._likely(0.5) else "continue",
            **({} if self._needs is None else draw_needs(self._needs)),
        )
        return _conditioned(spec, params["token"])

    def _possible(self, kinds: list[str]) -> bool:
        """Whether this node has a resource of one of the kinds; mostly, we ask for such."""
        names = [name.rstrip("0123456789") for name in self._resources]
        return bool(set(kinds) & set(names)) or self._likely(0.1)

    def _params(self, kinds: list[str], size: int) -> dict[str, Any]:
        chance, profile = self._chance, self._profile
        iterations = size * chance.choice((1, 1, 1, 1, 4))
        if self._likely(profile.endless):
            iterations = ENDLESS
        params: dict[str, Any] = {
            "token": chance.randrange(1, 1_000_000),
            "iterations": iterations,
            "strip_s": chance.choice(profile.strips_s),
        }
        if self._likely(profile.device_failures):
            # by what was drawn before: another draw would change all known seeds
            fault = "crashes_on" if params["token"] % 2 else "fails_on"
            params[fault] = [chance.choice(kinds)]
        if self._likely(profile.application_failures):
            params["raises_at"] = chance.randrange(size)
        return params

    def _after(self, client: SimulatedClient, position: int) -> list[int]:
        chance = self._chance
        if not self._likely(self._profile.dependencies):
            return []
        if position and self._likely(0.5):
            return [-chance.randint(1, position)]
        return [chance.choice(client.user.tasks)] if client.user.tasks else []

    # ------------------------------------------------------------ tasks

    def _some(self, client: SimulatedClient) -> list[int]:
        tasks = client.user.tasks[-12:]
        return sorted(self._chance.sample(tasks, min(len(tasks), 2)))

    def _control(self, client: SimulatedClient) -> None:
        tasks = self._some(client)
        if not tasks:
            return
        verb: Any = self._chance.choice(VERBS)
        control(client, verb, tasks)

    def _migrate(self, client: SimulatedClient) -> None:
        if not client.user.tasks:
            return
        task = self._chance.choice(client.user.tasks[-12:])
        name = self._chance.choice(self._resources)
        pins = client.user.promises.pins
        pins.ask(task)

        def take(reply: m.Request) -> None:
            pins.answer(task, name if isinstance(reply, m.Done) else None)

        client.ask(m.Migrate(request=0, id=task, resource=name), take)

    def _amend(self, client: SimulatedClient) -> None:
        tasks = self._some(client)
        if tasks:
            priority = self._chance.randint(-2, 2)
            client.ask(
                m.Amend(request=0, ids=tasks, priority=priority), lambda _reply: None
            )

    def _list(self, client: SimulatedClient) -> None:
        def take(reply: m.Request) -> None:
            if isinstance(reply, m.TaskList):
                note_listed(client, reply)

        client.ask(m.ListTasks(0, limit=self._chance.choice((1, 5, 100))), take)

    def _watch(self, client: SimulatedClient) -> None:
        ids = self._some(client) or None
        client.watch = m.Subscribe(0, ids, progress=self._likely(0.5))
        client.ask(client.watch, lambda _reply: None)

    def _explain(self, client: SimulatedClient) -> None:
        for task in self._some(client):
            client.ask(m.Explain(0, task), lambda _reply: None)

    # ------------------------------------------------------------ the node

    def _drain(self, client: SimulatedClient) -> None:
        name = self._chance.choice(self._resources)
        drain(client, name, wanted=self._likely(0.5))

    def _policy(self, client: SimulatedClient) -> None:
        name = self._chance.choice(POLICIES_BY_NAME)
        policy = client.user.promises.policy
        policy.ask("policy")

        def take(reply: m.Request) -> None:
            policy.answer("policy", name if isinstance(reply, m.PolicyInfo) else None)

        client.ask(m.Policies(request=0, set=name), take)


def control(client: SimulatedClient, verb: Any, tasks: list[int]) -> None:
    """Cancel, hold or release, and note what was promised."""
    promises = client.user.promises
    if verb == "cancel":
        client.user.history.ask_to_cancel(*tasks)
    elif verb != "snapshot":
        for task in tasks:
            promises.holds.ask(task)

    def take(reply: m.Request) -> None:
        done = reply.ids if isinstance(reply, m.Done) else []
        if verb == "cancel":
            promises.cancels.update(done)
        if verb in {"cancel", "snapshot"}:
            return
        for task in tasks:
            wish = verb == "hold" if task in done else None
            promises.holds.answer(task, wish)

    client.ask(m.Control(request=0, verb=verb, ids=tasks), take)


def drain(client: SimulatedClient, name: str, *, wanted: bool) -> None:
    """Drain a resource, or give it back, and note what was promised."""
    drains = client.user.promises.drains
    drains.ask(name)

    def take(reply: m.Request) -> None:
        drains.answer(name, wanted if isinstance(reply, m.Done) else None)

    client.ask(m.Drain(request=0, resource=name, on=wanted), take)


def note_listed(client: SimulatedClient, listed: m.TaskList) -> None:
    """Check a listing: ends are final, and nobody sees what is another's."""
    for info in listed.tasks:
        if info.state in m.ENDED:
            client.told(info.id, info.state, info.result)
        if client.user.uid and info.owner != f"uid:{client.user.uid}":
            client.complaints.append(f"{client.process.name} sees task {info.id}")


def _conditioned(spec: m.TaskSpec, token: int) -> m.TaskSpec:
    """Give dependencies another condition, or make them inputs.

    The condition follows from what was drawn before: another draw would change all known
    seeds.
    """
    if not spec.after:
        return spec
    match token % 8:
        case 1:
            return replace(spec, after=[], after_any=spec.after)
        case 2:
            return replace(spec, after=[], after_notok=spec.after)
        case 3 | 4:
            inputs = [m.ResultInput(task, places=[["input"]]) for task in spec.after]
            params = spec.params | {"input": None}
            return replace(spec, after=[], inputs=inputs, params=params)
        case _:
            return spec
