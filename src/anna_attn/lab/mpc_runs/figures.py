"""The figures about protocols, from runs on this machine."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table

from anna_attn.lab import atomic, provenance
from anna_attn.lab.figures import mpc_exponents, mpc_rounds


def draw(out: Path, *, quick: bool, seed: int, console: Console) -> None:
    """Run both experiments; write NAME.json and NAME.svg of each into `out`, and print the fits.

    Args:
        out: folder, made if it is missing.
        quick: run small protocols only.
        seed: of inputs.
        console: for results; progress goes to stderr.
    Raises: ImportError without matplotlib; RuntimeError for a wrong output; OSError.
    """
    out.mkdir(parents=True, exist_ok=True)
    command = f"anna mpc figures {out}{' --quick' if quick else ''} --seed {seed}"
    with Console(stderr=True).status("starting") as status:

        def progress(what: str, done: int, total: int) -> None:
            status.update(f"{what} done, {done} of {total}")

        rounds = mpc_rounds.run(
            sizes=mpc_rounds.SIZES[: 3 if quick else None],
            seeds=(seed,) if quick else (seed, seed + 1, seed + 2),
            progress=progress,
        )
        words = mpc_exponents.QUICK_WORDS if quick else mpc_exponents.FULL_WORDS
        exponents = mpc_exponents.run(max_words=words, seed=seed, progress=progress)
    made = provenance.collect(command, rounds["seeds"]).to_dict()
    for module, results in ((mpc_rounds, rounds), (mpc_exponents, exponents)):
        name = results["figure"]
        atomic.write_json(out / f"{name}.json", {"provenance": made, "results": results})
        module.plot(results, out / f"{name}.svg")
    growth = Table("protocol", "rounds, or phases, for a doubling", box=None)
    for panel in rounds["constant"]:
        growth.add_row(panel["name"], f"{panel['slope']:+.2f}")
    for panel in rounds["connectivity"]:
        growth.add_row(f"connectivity, {panel['graph']} (phases)", f"{panel['slope']:+.2f}")
    growth.add_row("k-hop, in k", f"{rounds['k_hop']['slope']:+.2f}")
    columns, rows = mpc_exponents.fits(exponents)
    fits = Table(*columns, box=None)
    for row in rows:
        fits.add_row(*row)
    for table in (growth, fits):
        console.print(table, soft_wrap=True)
