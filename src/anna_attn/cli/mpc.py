"""`anna mpc`: protocols of Massively Parallel Computation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

mpc = typer.Typer(
    help="Run protocols of Massively Parallel Computation, limits enforced.", no_args_is_help=True
)


@mpc.command(name="list")
def list_protocols() -> None:
    """List the protocols, their options and the formulas of their rounds."""
    from anna_attn.lab.mpc_runs.command import print_cases

    print_cases(Console())


@mpc.command(name="figures")
def draw_figures(
    out: Annotated[Path, typer.Argument(help="Folder for data and figures.")],
    quick: Annotated[bool, typer.Option("--quick", help="Small runs only: seconds.")] = False,
    seed: Annotated[int, typer.Option(help="Of inputs.")] = 0,
) -> None:
    """Measure how rounds and machines grow, and draw both figures of the page on protocols.

    Three minutes and 4 GB without --quick. It cannot resume.
    """
    from anna_attn.lab.mpc_runs.figures import draw

    try:
        draw(out, quick=quick, seed=seed, console=Console())
    except KeyboardInterrupt:
        raise KeyboardInterrupt("the figures begin again, they cannot resume") from None


@mpc.command(name="run")
def run_protocol(
    name: Annotated[str, typer.Argument(help="A name that `anna mpc list` shows.")],
    n: Annotated[int, typer.Option("-n", "--n", help="Words, tokens or vertices to draw.")] = 4096,
    eps: Annotated[float, typer.Option(help="A machine has O(N^eps) words.")] = 0.5,
    input_file: Annotated[
        Path | None,
        typer.Option("--input", help="Words to use: text, .npy, or a list of edges."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of drawn input and of random steps.")] = 0,
    engine: Annotated[str, typer.Option(help="in-process, hostile or ray.")] = "in-process",
    address: Annotated[
        str | None, typer.Option(help="With ray: host:port of a cluster. Default: a local one.")
    ] = None,
    check: Annotated[
        bool, typer.Option(help="Compare the output with the sequential answer.")
    ] = True,
    check_locality: Annotated[
        bool, typer.Option(help="Rerun each step on half of the machines: twice the time.")
    ] = False,
    steps: Annotated[bool, typer.Option("--steps", help="Print every step's words.")] = False,
    output: Annotated[
        Path | None, typer.Option(help="Write the output words: .npy, or text.")
    ] = None,
    trace: Annotated[Path | None, typer.Option(help="Write the trace as JSON.")] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw words kept and moved per round: .png, .svg, .pdf.")
    ] = None,
    hops: Annotated[int | None, typer.Option(help="k-hop: k.")] = None,
    symbols: Annotated[int | None, typer.Option(help="k-hop, induction-heads.")] = None,
    bits: Annotated[int | None, typer.Option(help="sort: of a word.")] = None,
    algorithm: Annotated[str | None, typer.Option(help="sort: radix or sample.")] = None,
    modulus: Annotated[int | None, typer.Option(help="match2: M; default N^2.")] = None,
    target: Annotated[int | None, typer.Option(help="three-sum: of the sum.")] = None,
    graph: Annotated[
        str | None,
        typer.Option(help="connectivity: random, path, star, cycle or two-cycles."),
    ] = None,
    edges: Annotated[int | None, typer.Option(help="connectivity: of a random graph; 2 N.")] = None,
    vertices: Annotated[
        int | None, typer.Option(help="connectivity: with --input; default: the largest + 1.")
    ] = None,
    heads: Annotated[int | None, typer.Option(help="anna-, softmax-attention: H.")] = None,
    tables: Annotated[int | None, typer.Option(help="anna-attention: L.")] = None,
    code_bits: Annotated[int | None, typer.Option(help="anna-attention: of a code.")] = None,
    head_dim: Annotated[int | None, typer.Option(help="softmax-attention: D.")] = None,
    value_dim: Annotated[int | None, typer.Option(help="Attention: words of a value.")] = None,
    rank: Annotated[int | None, typer.Option(help="low-rank-attention: r.")] = None,
    causal: Annotated[
        bool | None, typer.Option("--causal", help="anna-, softmax-attention.")
    ] = None,
) -> None:
    """Run a protocol on drawn or given words, check its answer, and print what it used.

    The engine enforces the model: a machine that keeps, sends or receives too much ends the run
    with an error that names it. A run that was stopped begins again; it cannot resume.
    """
    from anna_attn.lab.mpc_runs.command import Request, run_case

    options = {
        "hops": hops,
        "symbols": symbols,
        "bits": bits,
        "algorithm": algorithm,
        "modulus": modulus,
        "target": target,
        "graph": graph,
        "edges": edges,
        "vertices": vertices,
        "heads": heads,
        "tables": tables,
        "code_bits": code_bits,
        "head_dim": head_dim,
        "value_dim": value_dim,
        "rank": rank,
        "causal": causal,
    }
    request = Request(
        name=name,
        n=n,
        eps=eps,
        seed=seed,
        input_file=input_file,
        engine=engine,
        address=address,
        check=check,
        check_locality=check_locality,
        steps=steps,
        output=output,
        trace=trace,
        plot=plot,
        options={name: value for name, value in options.items() if value is not None},
    )
    try:
        run_case(request, Console())
    except KeyboardInterrupt:
        raise KeyboardInterrupt("a run of a protocol begins again, it cannot resume") from None
