"""What same_bits.py makes and hashes: the command of each case, and the sources that the commands import.

Commands run in a folder with shared/, golden/ and sources/, see write_sources(). {} stands for what a command makes.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
SHARED_DATA = ROOT.parent / "shared" / "data"
STORES = ("memory", "mapped", "pread", "direct", "static", "belady", "shared", "packed")
CACHING_STORES = ("static", "belady", "shared", "packed")
ENGINES = ("uring", "threads")
SAMPLED_MODELS, HOP_MODELS = ("sage", "gcn", "gat"), ("sgc", "sign", "hoga")
GRAPHS = (
    *("cora", "oewn", "heterophilous-tolokers", "heterophilous-minesweeper", "email-Enron", "ego-Twitter-undirected"),
    *("cnr-2000", "fb15k-237", "wn18rr", "codex-s", "umls", "kinship"),
)
SKEWED = "generate kronecker {} --nodes 20000 --edges 200000 --dim 64 --classes 8 --seed 1"
DATASETS = {
    **{graph: f"import shared/{graph} {{}}" for graph in GRAPHS},
    **{f"cora-{dtype}": f"import shared/cora {{}} --dtype {dtype}" for dtype in ("float16", "bfloat16", "int8")},
    "cora-archive": "import shared/cora/data.npz {}",
    "cora-hot": "import shared/cora {} --order hot",
    "cora-undirected": "import shared/cora {} --undirected",
    "web-hot": "import shared/cnr-2000 {} --order hot --random-features 16",
    "text": "import sources/edges.tsv {}",
    "text-workers": "import sources/edges.tsv {} --workers 2",
    "text-hot": "import sources/edges.tsv {} --undirected --order hot --self-loops drop --duplicates drop",
    "text-names": "import sources/names.csv {}",
    "tables": "import sources/shop {} --weight amount --time at",
    "tables-hot": "import sources/shop {} --weight amount --time at --undirected --order hot",
    "triples": "import sources/facts {}",
    "fb15k-237-part": "import sources/fb15k-237 {}",
    "wn18rr-part": "import sources/wn18rr {}",
    "skewed": SKEWED,
    "skewed-hot": f"{SKEWED} --order hot",
    "uniform": "generate uniform {} --nodes 5000 --edges 60000 --dim 20 --dtype float16 --seed 2 --undirected",
    "blocks": "generate sbm {} --nodes 5000 --edges 60000 --dim 32 --classes 8 --dtype int8 --seed 3",
    "bare": "generate kronecker {} --nodes 5000 --edges 60000 --dim 0 --classes 4 --seed 4",
    "wide": "generate uniform {} --nodes 100000 --edges 8000000 --dim 16 --dtype bfloat16 --seed 5",
}
EXPORTS = {
    **{
        f"{name}-{form}": f"export datasets/{name} {{}} --format {form}"
        for name in ("cora", "cora-hot", "tables-hot", "text-names", "skewed-hot", "blocks")
        for form in ("numpy", "parquet", "graphbolt")
    },
    **{f"{name}-graphbolt": f"export datasets/{name} {{}} --format graphbolt" for name in ("pyg-dblp", "pyg-aifb")},
    "golden-numpy": "export golden/plain {} --format numpy",
    "codex-s-numpy": "export datasets/codex-s {} --format numpy",
}
HOP_TABLES = {
    "sign": "propagate datasets/skewed --operator sign --hops 3",
    "both": "propagate datasets/skewed-hot --operator sgc --operator ppr:alpha=0.2 --hops 2 --direction both",
    "some": "propagate datasets/skewed --operator row --operator heat:t=3 --hops 2 --rows labelled",
    "half": "propagate datasets/blocks --operator sign --hops 2 --direction out --dtype float16",
    "wide": "propagate datasets/wide --operator sign --hops 2 --dtype bfloat16",
}
PACKED = {
    "epochs": "pack datasets/skewed --epochs 2 --seed 1",
    "reused": "pack datasets/skewed --epochs 2 --seed 1 --reuse",
    "hot": "pack datasets/skewed-hot --epochs 2",
}


def trainings() -> dict[str, str]:
    """Arguments of `diskhop train` for each case, the longest first."""
    usual, memory = "--engine uring --threads 2 --epochs 2", "--placement memory --memory 1500MB"
    presets = [("oewn", "oewn", model) for model in ("sage", "hoga", "sign", "sgc")]
    presets += [("tolokers", "heterophilous-tolokers", model) for model in (*SAMPLED_MODELS, *HOP_MODELS)]
    presets += [("cora", "cora", model) for model in (*SAMPLED_MODELS, *HOP_MODELS)]
    found = {}
    for preset, graph, model in presets:
        name, words = f"preset-{preset}-{model}", f"datasets/{graph} --preset {preset} --model {model} {usual}"
        found[name] = f"{words} {memory} --scratch scratch/{name}" if model in HOP_MODELS else f"{words} --store direct"
    sign = f"datasets/oewn --preset oewn --model sign {usual} --placement disk --scratch scratch/oewn-sign-disk"
    found["preset-oewn-sign-disk"] = sign
    both = "datasets/skewed --threads 2 --epochs 2"
    for store, engine in product(STORES, ENGINES):
        name, words = f"sage-{store}-{engine}", f"{both} --model sage --store {store} --engine {engine}"
        found[name] = words + {"shared": " --ordered", "packed": f" --scratch scratch/{name}"}.get(store, "")
    for model, place, engine in product(HOP_MODELS, ("memory", "disk"), ENGINES):
        name, words = f"{model}-{place}-{engine}", f"{both} --model {model} --placement {place} --engine {engine}"
        found[name] = f"{words} --scratch scratch/{name}"
    sage = "--model sage --engine uring --epochs 2"
    static = f"datasets/skewed {sage} --store static"
    return {
        **found,
        "packed-ahead": f"datasets/skewed {sage} --threads 2 --store packed --cache 1MB --scratch packed/epochs",
        "one-thread": f"{static} --threads 1",
        "little-memory": f"{static} --threads 2 --memory 120MB --cache 1MB",
        "reused": f"{static} --threads 2 --reuse",
        "bfloat16": f"{static} --threads 2 --precision bfloat16",
        "deep": f"{static} --threads 2 --fanout 5,5,5 --batch-size 500 --norm batch --residual",
        **{
            f"{name}-dataset": f"datasets/{name} {sage} --threads 2 --store direct"
            for name in ("bare", "pyg-tasks", "skewed-hot", "blocks", "uniform", "tables")
        },
    }


def python_trainings() -> dict[str, dict[str, Any]]:
    """Options of diskhop.train() for each case; these models are trained in the script's process, to save starts."""
    found: dict[str, dict[str, Any]] = {}
    for model, store, engine in product(("gcn", "gat"), STORES, ENGINES):
        options = {"model": model, "store": store, "engine": engine, "threads": 2, "epochs": 2}
        found[f"{model}-{store}-{engine}"] = {**options, "ordered": True} if store == "shared" else options
    return found


def embeddings() -> dict[str, str]:
    """Arguments of `diskhop embed` for each case, the longest first."""
    threads, small = "--engine uring --threads 2 --memory 300MB", "--dim 32 --epochs 2"
    presets = {
        "fb15k-237": ("complex", "distmult", "transe", "rotate"),
        "wn18rr": ("complex", "transe", "rotate"),
        "codex-s": ("complex", "transe", "rotate"),
    }
    found = {"whole": f"datasets/fb15k-237 --preset fb15k-237 --model transe --epochs 1 --partitions 8 {threads}"}
    for preset, models in presets.items():
        graph = preset if preset == "codex-s" else f"{preset}-part"
        for model, count in product(models, (1, 8)):
            words = f"datasets/{graph} --preset {preset} --model {model} --partitions {count} --epochs 1 {threads}"
            found[f"preset-{preset}-{model}-{count}"] = words
    found["edges-on-disk"] = (
        "datasets/ego-Twitter-undirected --model dot --dim 16 --partitions 8 --epochs 1 --memory 60MB --threads 2"
    )
    codex, skewed = f"datasets/codex-s {small}", f"datasets/skewed {small} --model dot"
    for model, count in product(("distmult", "complex", "transe", "transe-l1", "rotate"), (1, 8)):
        found[f"{model}-{count}"] = f"{codex} --model {model} --partitions {count} {threads}"
    complex_8 = f"{codex} --model complex --partitions 8 --memory 300MB --engine threads"
    return {
        **found,
        "dot-1": f"{skewed} --partitions 1 {threads}",
        "dot-8": f"{skewed} --partitions 8 {threads}",
        "dot-contrastive": f"{skewed} --partitions 8 --loss contrastive --degree-negatives 0.5 {threads}",
        "one-thread": f"{complex_8} --threads 1",
        "beta": f"{complex_8} --threads 2 --partition-order beta --loss logistic",
        "legend": f"{complex_8} --threads 2 --partition-order legend --reciprocal --repartitions 2",
        "cover": f"{codex} --model transe --partitions 16 --buffer 4 --partition-order cover --loss margin {threads}",
    }


def neighbor_loaders() -> dict[str, tuple[str, dict[str, Any]]]:
    """Dataset and options of a NeighborLoader for each case."""
    found: dict[str, tuple[str, dict[str, Any]]] = {}
    for store, engine, memory, threads in product(STORES, ENGINES, ("100MB", "56MB"), (1, 2)):
        options: dict[str, Any] = {"store": store, "engine": engine, "memory": memory, "threads": threads}
        options["ordered"] = store == "shared"
        if memory == "56MB" and store in CACHING_STORES:
            options["cache"] = "500KB"
        found[f"{store}-{engine}-{memory}-{threads}"] = "skewed", options
    for dataset in ("skewed-hot", "uniform", "blocks", "tables", "pyg-tasks"):
        found[dataset] = dataset, {"memory": "100MB", "store": "direct", "drop_last": True}
    every = {"num_neighbors": [-1, 3], "input_nodes": None, "shuffle": False, "memory": "300MB", "store": "direct"}
    found["all-nodes"] = "skewed", every
    # Memory for a part of the topology, and for none of it.
    for memory in ("34MB", "12MB"):
        little = {"batch_size": 32, "input_nodes": np.arange(0, 100_000, 50), "memory": memory, "store": "direct"}
        found[f"wide-{memory}"] = "wide", little
    return found


def hop_loaders() -> dict[str, tuple[str, dict[str, Any]]]:
    """Hop tables and options of a HopLoader for each case."""
    found: dict[str, tuple[str, dict[str, Any]]] = {}
    for place, engine, shuffle, threads in product(("memory", "disk"), ENGINES, ("rows", "chunks", "none"), (1, 2)):
        options = {"place": place, "engine": engine, "shuffle": shuffle, "threads": threads}
        found[f"sign-{place}-{engine}-{shuffle}-{threads}"] = "sign", options
    for tables in ("both", "some", "half", "wide"):
        found[tables] = tables, {"place": "disk", "which": [0, -1]}
    return found


def write_sources(folder: Path) -> None:
    """Write sources/: texts and tables, and a sixteenth of two knowledge graphs, whose presets then take seconds."""
    (folder / "shared").symlink_to(SHARED_DATA)
    (folder / "golden").symlink_to(ROOT / "tests" / "golden")
    generator = np.random.default_rng(7)
    pairs = generator.integers(0, 3000, (20_000, 2)).tolist()
    texts = {
        "edges.tsv": [f"{7 * source}\t{7 * target}" for source, target in pairs],
        "names.csv": [f"n{source},n{target}" for source, target in pairs],
        "shop/edges.csv": ["src,dst,amount,at", *(f"{a},{b},{a % 9 + 0.5},{a + b}" for a, b in pairs)],
        "shop/nodes.csv": [
            "id,age,spent,label,split",
            *(
                f"{node},{node % 80},{node / 8},{node % 3},{('train', 'val', 'test')[node % 7 % 3]}"
                for node in range(3000)
            ),
        ],
    }
    for part in ("train", "valid", "test"):
        triples = generator.integers(0, 500, (4000, 2)).tolist()
        texts[f"facts/{part}.txt"] = [f"e{head}\tr{(head + tail) % 11}\te{tail}" for head, tail in triples]
    for name, lines in texts.items():
        path = folder / "sources" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join([*lines, ""]))
    for graph in ("fb15k-237", "wn18rr"):
        arrays = dict(np.load(SHARED_DATA / graph / "data.npz"))
        (folder / "sources" / graph).mkdir()
        shorter = {part: arrays[part][::16] for part in ("train", "valid", "test")}
        np.savez(folder / "sources" / graph / "data.npz", **{**arrays, **shorter})


def pyg_objects() -> dict[str, Any]:
    """Objects of PyTorch Geometric by the name of their dataset: one with tasks, and the typed graphs."""
    import torch
    from torch_geometric.data import Data, HeteroData

    generator = np.random.default_rng(8)
    tasks = (generator.random((2000, 2)) < 0.5).astype(np.float32)
    tasks[::10, 1] = np.nan
    part = torch.arange(2000) % 4
    objects: dict[str, Any] = {
        "pyg-tasks": Data(
            x=torch.from_numpy(generator.normal(size=(2000, 12)).astype(np.float32)),
            edge_index=torch.from_numpy(generator.integers(0, 2000, (2, 16_000))),
            edge_weight=torch.from_numpy(generator.random(16_000, np.float32)),
            y=torch.from_numpy(tasks),
            train_mask=part < 2,
            val_mask=part == 2,
            test_mask=part == 3,
        )
    }
    for graph in ("dblp", "aifb"):
        data, folder = HeteroData(), SHARED_DATA / graph
        for path in sorted(folder.glob("edges-*.npy")):
            source, relation, target = path.stem.removeprefix("edges-").split("--")
            data[source, relation, target].edge_index = torch.from_numpy(np.load(path))
        for kind in sorted(data.node_types):
            ends = [data[edge].edge_index[end] for edge in data.edge_types for end in (0, 1) if edge[2 * end] == kind]
            data[kind].x = torch.from_numpy(generator.normal(size=(int(torch.cat(ends).max()) + 1, 6)))
        labels = np.load(folder / "labels.npz")
        data[str(labels["node_type"])].y = torch.from_numpy(labels["y"])
        objects[f"pyg-{graph}"] = data
    return objects
