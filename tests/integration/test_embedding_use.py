"""Uses of trained embeddings: exports by names and ids, nearest nodes, likely edges; by command, too."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from numpy.typing import NDArray

import diskhop
from diskhop.cli import run as run_command
from diskhop.dataset.dataset import Dataset, open_dataset
from diskhop.errors import ConfigError
from diskhop.importing.run import import_graph
from diskhop.io.engine import open_engine
from diskhop.runs.embedding.map import draw_map, principal_axes
from diskhop.runs.embedding.opened import open_run
from diskhop.runs.embedding.places import Places
from diskhop.runs.search import search
from diskhop.runs.start import run_config
from tests.embedding import OPTIONS, embed_config

NUM_NODES = 2000
PEOPLE = ["ada", "bo", "cy", "di", "eve", "fay", "gus", "hal"]


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run over people in a ring: each knows the next, and likes the one after that."""
    folder = tmp_path_factory.mktemp("named")
    source = folder / "source"
    source.mkdir()
    num = len(PEOPLE)
    lines = [
        f"{PEOPLE[i]}\t{r}\t{PEOPLE[(i + 1 + (r == 'likes')) % num]}" for i in range(num) for r in ("knows", "likes")
    ]
    (source / "train.txt").write_text("\n".join(lines[:14]) + "\n")
    (source / "valid.txt").write_text(lines[14] + "\n")
    (source / "test.txt").write_text(lines[15] + "\n")
    dataset = import_graph(source, folder / "graph", engine=open_engine("threads").engine)
    config = embed_config(
        epochs=60, partitions=4, batch_size=4, chunk_size=4, lr=0.3, eval_candidates=0, repartitions=1
    )
    run_config(dataset, config, folder / "run")
    return folder / "run"


@pytest.fixture(scope="module")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run over a graph in hot order, whose nodes go by their original ids, in several partitions."""
    folder = tmp_path_factory.mktemp("numbered")
    assert run_command(["generate", "kronecker", str(folder / "graph"), "--nodes", str(NUM_NODES), "--edges", "9000",
                        "--dim", "0", "--order", "hot"]) == 0  # fmt: skip
    options = {**OPTIONS, "model": "dot", "epochs": 3, "evaluate": True, "memory_bytes": 20_000_000}
    diskhop.embed(folder / "graph", out=folder / "run", **options)
    return folder / "run"


def vectors(run: Path) -> NDArray[np.float32]:
    """Return the embeddings by the ids that users see."""
    opened = open_run(run)
    places = Places(opened.dataset, opened.permutation).of(np.arange(opened.reader.layout.num_nodes))
    return opened.reader.gather(places).numpy()


@pytest.mark.parametrize("of", ["named", "numbered"])
def test_every_format_has_the_same_values(of: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    run: Path = request.getfixturevalue(of)
    expected = vectors(run)
    names = sorted(PEOPLE) if of == "named" else [str(each) for each in range(NUM_NODES)]
    for suffix in (".npy", ".parquet", ".tsv"):
        diskhop.export(run, tmp_path / f"out{suffix}")
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), expected)
    table = pq.read_table(tmp_path / "out.parquet")
    assert table["id"].to_pylist() == list(range(len(expected)))
    assert ("name" in table.column_names) == (of == "named")
    if of == "named":
        assert table["name"].to_pylist() == names
    np.testing.assert_array_equal(np.array(table["embedding"].to_pylist(), np.float32), expected)
    lines = [line.split("\t") for line in (tmp_path / "out.tsv").read_text().splitlines()]
    assert [line[0] for line in lines] == names
    np.testing.assert_array_equal(np.array([line[1:] for line in lines], np.float32), expected)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.npy", "out.parquet", "out.tsv"]


def test_ranks_and_places_belong_together(numbered: Path) -> None:
    opened = open_run(numbered)
    ranks = np.random.default_rng(0).permutation(NUM_NODES)[:50]
    places = Places(opened.dataset, opened.permutation)
    np.testing.assert_array_equal(places.ranks(places.of(ranks)), ranks)


@pytest.mark.parametrize("by", ["cosine", "dot", "l2"])
def test_neighbors_are_the_nearest_of_all(numbered: Path, by: str) -> None:
    values = vectors(numbered).astype(np.float64)
    asked = values[17]
    scores = {
        "cosine": values @ asked / np.linalg.norm(values, axis=1) / np.linalg.norm(asked),
        "dot": values @ asked,
        "l2": -np.linalg.norm(values - asked, axis=1),
    }[by]
    scores[17] = -np.inf
    found = diskhop.neighbors(numbered, "17", top=20, by=by)
    assert [each.score for each in found] == pytest.approx(np.sort(scores)[::-1][:20], abs=1e-5)
    assert [scores[int(each.name)] for each in found] == pytest.approx([each.score for each in found], abs=1e-5)


def test_likely_ends_are_found_by_name(named: Path) -> None:
    """The model has learnt the edges of its training: the tail of one is found."""
    tails = diskhop.score(named, "ada", "knows", "?", top=8)
    assert len(tails) == 8
    assert tails[0].name == "bo"
    assert tails[0].is_known
    assert [each.score for each in tails] == sorted((each.score for each in tails), reverse=True)
    heads = diskhop.score(named, "?", "likes", "cy", top=1)
    assert [each.name for each in heads] == ["ada"]
    found = diskhop.score(named, "ada", "knows", "bo")
    assert found.is_known
    assert found.score == pytest.approx(tails[0].score, rel=1e-5)
    assert (found.tail_rank, found.head_rank, found.num_nodes) == (1, 1, 8)
    assert not diskhop.score(named, "ada", "knows", "eve").is_known


def test_the_command_line_prints_them(named: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    def told(*arguments: str) -> str:
        assert run_command([*arguments]) == 0
        return capsys.readouterr().out

    assert len(told("neighbors", str(named), "ada", "--top", "3").splitlines()) == 3
    answers = json.loads(told("score", str(named), "ada", "knows", "?", "--top", "2", "--json"))["answers"]
    assert answers[0]["name"] == "bo"
    assert "known" in told("score", str(named), "ada", "knows", "bo")
    assert "MRR" in told("evaluate", str(named), "--eval-filtered")
    assert json.loads(told("evaluate", str(named), "--json"))["protocol"]["candidates"] == "all"
    assert "exported" in told("export", str(named), str(tmp_path / "people.tsv"))
    assert (tmp_path / "people.tsv").read_text().startswith("ada\t")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["neighbors", "RUN", "zoe"], "none of the 8 entities is named 'zoe'"),
        (["neighbors", "RUN", "ada", "--by", "magic"], "unknown nearness 'magic'"),
        (["neighbors", "RUN", "ada", "--top", "0"], "top must be a whole number of at least 1, got 0"),
        (["score", "RUN", "ada", "hates", "bo"], "none of the 2 relations is named 'hates'"),
        (["score", "RUN", "ada", "bo"], "edges have relations; name one"),
        (["score", "RUN", "?", "knows", "?"], "one end must be given"),
        (["score", "RUN", "ada"], "an edge is HEAD TAIL"),
        (["export", "RUN", "OUT/people.csv"], "use people.npy"),
        (["map", "RUN", "OUT/people.png"], "a map is an .svg file"),
        (["map", "RUN", "OUT/people.svg", "--by", "magic"], "unknown colours 'magic'"),
        (["map", "RUN", "OUT/people.svg", "--by", "label"], "have no classes to colour by"),
        (["map", "RUN", "OUT/people.svg", "--nodes", "0"], "nodes must be at least 1"),
        (["map", "RUN", "OUT/none/people.svg"], "none"),
        (["evaluate", "RUN", "--part", "train"], "unknown part 'train'"),
        (["evaluate", "RUN", "--memory", "1MB"], "measuring"),
        (["evaluate", "OUT"], "is no run, config.toml is missing"),
        (["neighbors", "OUT", "ada"], "is no embedding run"),
    ],
)
def test_mistakes_get_one_line(
    named: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    told = [each.replace("RUN", str(named)).replace("OUT", str(tmp_path)) for each in arguments]
    assert run_command(told) == 2
    error = capsys.readouterr().err
    assert message in " ".join(error.split())
    assert "Traceback" not in error
    assert list(tmp_path.iterdir()) == []


def test_a_node_without_a_name_goes_by_its_id(numbered: Path) -> None:
    with pytest.raises(ConfigError, match="none of the 2,000 nodes has the id '2000'; they have ids from 0 to 1999"):
        diskhop.neighbors(numbered, "2000")
    opened: Dataset = open_dataset(numbered.parent / "graph")
    assert opened.original_ids() is not None


@pytest.fixture
def grown(tmp_path: Path) -> Dataset:
    """The people and some more, in another order, with a relation more."""
    source = tmp_path / "source"
    source.mkdir()
    people = ["zoe", *reversed(PEOPLE), "abe"]
    relations = ("hates", "knows", "likes")
    lines = [f"{a}\t{relations[i % 3]}\t{b}" for i, (a, b) in enumerate(itertools.pairwise(people))]
    for part in ("train", "valid", "test"):
        (source / f"{part}.txt").write_text("\n".join(lines) + "\n")
    return import_graph(source, tmp_path / "graph", engine=open_engine("threads").engine)


@pytest.mark.parametrize("partitions", [1, 3])
def test_what_had_embeddings_begins_with_them(named: Path, grown: Dataset, tmp_path: Path, partitions: int) -> None:
    """A run that learns nothing ends with what it began with."""
    old = dict(zip(sorted(PEOPLE), vectors(named), strict=True))
    idle = {**OPTIONS, "epochs": 1, "lr": 1e-30, "partitions": partitions, "evaluate": False}
    diskhop.embed(grown, out=tmp_path / "cold", **idle)
    diskhop.embed(grown, out=tmp_path / "warm", **idle, warm_start=str(named))
    names = sorted([*PEOPLE, "zoe", "abe"])
    for name, warm, cold in zip(names, vectors(tmp_path / "warm"), vectors(tmp_path / "cold"), strict=True):
        np.testing.assert_array_equal(warm, old.get(name, cold))
    relations = [open_run(each).reader.relations.numpy() for each in (named, tmp_path / "warm", tmp_path / "cold")]
    np.testing.assert_array_equal(relations[1], [relations[2][0], *relations[0]])  # 'hates' is new


def test_another_kind_of_embeddings_is_no_beginning(named: Path, grown: Dataset, tmp_path: Path) -> None:
    for option, value in (("model", "distmult"), ("dim", 16), ("reciprocal", True)):
        with pytest.raises(ConfigError, match=f"{option} .* this run .*: --warm-start needs the same"):
            diskhop.embed(grown, out=tmp_path / "warm", **{**OPTIONS, option: value}, warm_start=str(named))
        assert not (tmp_path / "warm").exists()


def test_training_ends_when_validations_get_no_better(named: Path, tmp_path: Path) -> None:
    options = {**OPTIONS, "epochs": 50, "lr": 1e-30, "patience": 3, "eval_candidates": 0}
    done = diskhop.embed(named.parent / "graph", out=tmp_path / "run", **options)
    assert len(done.result["epochs"]) == 4  # the first is the best, three are no better
    assert done.result["stopped_early"]
    resumed = diskhop.embed(out=tmp_path / "run", resume=True)
    assert resumed.result["epochs"] == done.result["epochs"]


def test_a_search_goes_on_and_ranks_its_trials(named: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = named.parent / "graph"
    options = {**OPTIONS, "epochs": 3, "n3": 0.0, "eval_candidates": 0}
    del options["lr"], options["init_scale"]
    first = search(graph, out=tmp_path, trials=2, **options)
    assert sorted(each.path.name for each in first) == ["trial-001", "trial-002"]
    assert all("n3" not in each.options for each in first)  # it was given
    assert {each.options["lr"] for each in first} == {open_run(each.path).config.lr for each in first}
    (first[0].path / "result.json").unlink()  # as if it had been stopped before its end
    before = (first[1].path / "result.json").stat().st_mtime_ns
    again = search(graph, out=tmp_path, trials=3, **options)
    assert (first[1].path / "result.json").stat().st_mtime_ns == before
    assert len(again) == 3
    valid = [each.valid for each in again if each.valid is not None]
    assert valid == sorted(valid, reverse=True)
    assert {each.path: each.valid for each in first}.items() <= {each.path: each.valid for each in again}.items()
    with pytest.raises(ConfigError, match="other options: dim differ"):
        search(graph, out=tmp_path, trials=1, **{**options, "dim": 4})
    arguments = ["embed", str(graph), "--out", str(tmp_path / "by-command"), "--epochs", "1", "--search", "2"]
    assert run_command([*arguments, "--memory", "100MB"]) == 0
    printed = capsys.readouterr()
    assert "trial 2/2" in printed.err
    assert "--config" in printed.out
    assert run_command([*arguments, "--resume"]) == 2
    assert run_command([*arguments, "--no-eval"]) == 2


@pytest.mark.parametrize("by", ["degree", "label"])
def test_a_map_has_a_point_for_each_node(numbered: Path, tmp_path: Path, by: str) -> None:
    share = draw_map(numbered, tmp_path / "map.svg", by=by, nodes=300)
    assert 0 < share < 1
    root = ElementTree.parse(tmp_path / "map.svg").getroot()
    names = [title.text for title in root.iterfind("{*}circle/{*}title")]
    assert len(set(names)) == 300
    assert set(names) <= {str(each) for each in range(NUM_NODES)}
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    for circle in root.iterfind("{*}circle"):
        assert 0 < float(circle.attrib["cx"]) < width
        assert 0 < float(circle.attrib["cy"]) < height
    first = (tmp_path / "map.svg").read_bytes()
    draw_map(numbered, tmp_path / "map.svg", by=by, nodes=300, overwrite=True)
    assert (tmp_path / "map.svg").read_bytes() == first


def test_points_lie_in_the_plane_of_most_variance() -> None:
    values = torch.randn(500, 6, generator=torch.Generator().manual_seed(0)) * torch.tensor([1.0, 9, 1, 5, 1, 1])
    axes, share = principal_axes(values)
    for axis, column in ((0, 1), (1, 3)):
        assert abs(np.corrcoef(axes[:, axis], values[:, column])[0, 1]) > 0.99
    assert share == pytest.approx((81 + 25) / (81 + 25 + 4), abs=0.02)
    assert principal_axes(torch.ones(3, 1))[1] == 1  # nothing differs
