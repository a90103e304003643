"""`orcaflow dataset`: what was published into datasets, their files, and rows of them."""

from __future__ import annotations

from typing import Annotated

import typer

from orcaflow.cli.commands import shares
from orcaflow.cli.output import Format, FormatOption, print_fields, print_json, print_rows, say

app = typer.Typer(
    help="Datasets: their segments and files by time, and rows of them.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

_SEGMENT_COLUMNS = ("interval", "version", "number", "files", "rows", "bytes")

_Name = Annotated[str, typer.Argument(help="The dataset.")]
_Interval = Annotated[
    str | None,
    typer.Option(help="Only segments with rows of this time, as 2026-11-20/P1D; in UTC."),
]


@app.command(name="list", epilog="\b\nExamples:\n  orcaflow dataset list -o json\n")
def list_(form: FormatOption = Format.TABLE) -> None:
    """List the datasets that tasks and streams have published into.

    Fields: dataset, start, end, segments, rows, bytes, unused_segments (replaced ones), changed.
    """
    from operations.datasets import list_datasets
    from operations.documents.datasets import summary_row
    from operations.session import opened

    with opened() as session:
        found = list_datasets(session)
        zone = session.zone
    print_rows(
        [summary_row(each) for each in found],
        form=form,
        columns=("dataset", "start", "end", "segments", "rows", "bytes", "changed"),
        zone=zone,
        none="No dataset has anything",
    )


@app.command(
    epilog=(
        "\b\n"
        "Examples:\n"
        "  orcaflow dataset show flights\n"
        "  orcaflow dataset show flights --interval 2026-11-20/P1D -o json\n"
    )
)
def show(name: _Name, interval: _Interval = None, form: FormatOption = Format.TABLE) -> None:
    """Show a dataset with its segments, and the offsets of the stream that feeds it."""
    from operations.datasets import show_dataset
    from operations.documents.datasets import (
        dataset_document,
        offset_row,
        segment_row,
        summary_row,
    )
    from operations.session import opened

    with opened() as session:
        found = show_dataset(session, name, interval=interval)
        zone = session.zone
    if form is Format.JSON:
        print_json(dataset_document(found))
        return
    print_fields(summary_row(found.summary), zone=zone)
    print_rows(
        [segment_row(each) for each in found.segments],
        form=form,
        columns=_SEGMENT_COLUMNS,
        none="There is no segment",
    )
    if found.offsets:
        print_rows(
            [offset_row(each) for each in found.offsets],
            form=form,
            columns=("stream", "partition", "offset", "max_event_time"),
            zone=zone,
        )


@app.command(
    epilog="\b\nExamples:\n  orcaflow dataset segments flights --interval 2026-11-20/P1D -o json\n"
)
def segments(name: _Name, interval: _Interval = None, form: FormatOption = Format.TABLE) -> None:
    """List the segments of a dataset in order of time: interval, version, number, rows, bytes."""
    from operations.datasets import show_dataset
    from operations.documents.datasets import segment_row
    from operations.session import opened

    with opened() as session:
        found = show_dataset(session, name, interval=interval)
    print_rows(
        [segment_row(each) for each in found.segments],
        form=form,
        columns=_SEGMENT_COLUMNS,
        none="There is no segment",
    )


@app.command(epilog="\b\nExamples:\n  orcaflow dataset files flights --interval 2026-11-20/P1D\n")
def files(name: _Name, interval: _Interval = None, form: FormatOption = Format.TABLE) -> None:
    """List the Parquet files of a dataset, as this computer has them."""
    from operations.datasets import dataset_files
    from operations.documents.datasets import file_row
    from operations.session import opened

    with opened() as session:
        found = dataset_files(session, name, interval=interval)
    print_rows(
        [file_row(each) for each in found], form=form, columns=("file",), none="There is no file"
    )


@app.command(
    epilog=(
        "\b\n"
        "Examples:\n"
        "  orcaflow dataset query flights --interval 2026-11-20/P1D --columns carrier,delay\n"
        "  orcaflow dataset query flights"
        " --sql 'SELECT carrier, count(*) AS n FROM dataset GROUP BY carrier ORDER BY n DESC'\n"
    )
)
def query(
    name: _Name,
    *,
    interval: _Interval = None,
    columns: Annotated[str, typer.Option(help="These columns alone, as a,b.")] = "",
    sql: Annotated[
        str | None,
        typer.Option(help="A SELECT statement of SQLite. The dataset is the table `dataset`."),
    ] = None,
    limit: Annotated[int, typer.Option(help="Rows at most.")] = 20,
    form: FormatOption = Format.TABLE,
) -> None:
    """Show some rows of a dataset, or the rows of a query.

    Without --sql the rows are in no order, and of whole chunks where an interval cuts one. A query
    reads all rows of the interval into memory. Times are texts in UTC, as
    2026-11-20T04:00:00.000000Z.

    For everything else there is Spark: dataset("flights").frame(spark, interval) in a task.
    """
    from operations.datasets import first_rows
    from operations.session import opened

    wanted = [each.strip() for each in columns.split(",") if each.strip()]
    with opened() as session:
        found = first_rows(session, name, interval=interval, columns=wanted, sql=sql, limit=limit)
        zone = session.zone
    print_rows(
        [dict(zip(found.columns, values, strict=True)) for values in found.values],
        form=form,
        columns=found.columns,
        zone=zone,
        none="There is no row",
    )
    if len(found.values) < found.rows:
        say(f"{len(found.values):,} of {found.rows:,} rows")


shares.add_to_datasets(app)
