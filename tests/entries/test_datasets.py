"""Data sets: what is loaded, and what happens when a file is missing, wrong, or cannot be fetched."""

from __future__ import annotations

import functools
import hashlib
import http.server
import re
import sys
import threading

import numpy as np
import pytest
from helpers.cases import each

from tensorcep import datasets

FILE = "enron/train-fold-1.txt"


@pytest.fixture
def data_folder(tmp_path, monkeypatch):
    """An empty data folder, with no way out to the network."""
    monkeypatch.setenv("TENSORCEP_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


@pytest.fixture
def fake_registry(monkeypatch):
    """Replace the registry by one file with the given content and URL."""

    def install(content: bytes, url: str = "http://127.0.0.1:9/closed.txt") -> None:
        facts = {"url": url, "sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
        monkeypatch.setattr(datasets, "registry", lambda: {FILE: facts})

    return install


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A web server of this process's own on a folder: (folder, base URL)."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    folder = tmp_path / "served"
    folder.mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder)) as httpd:
        threading.Thread(target=httpd.serve_forever, daemon=True).start()
        yield folder, f"http://127.0.0.1:{httpd.server_port}"
        httpd.shutdown()


def test_registry_lists_every_file_of_the_loaders():
    files = datasets.registry()
    folds = {f"{n}/{p}-fold-{k}.txt" for n in ("alog", "enron") for p in ("train", "test") for k in range(1, 6)}
    uci = {f"uci/{m}/{n}/nfold-{k}.mat" for m in datasets.LINKS for n in datasets.UCI_NAMES for k in range(1, 6)}
    simulated = {f"simulation/{m}-{k}.mat" for m in datasets.LINKS for k in (1, 2)}
    points = {file for names, _, _ in datasets.GP_FILES.values() for file in names}
    assert set(files) == folds | uci | simulated | points | {"dblp/dblp.mat"}
    for facts in files.values():
        assert re.fullmatch(r"https://\S+/[0-9a-f]{40}/\S+", facts["url"])  # a fixed commit
        assert re.fullmatch(r"[0-9a-f]{64}", facts["sha256"])
        assert facts["bytes"] > 0


@each("fold", range(1, 6))
def test_load_alog_matches_the_published_files(real_data, fold):
    train, test = datasets.load_alog(fold)
    assert train.shape == test.shape == (200, 100, 200)
    lines = [line.split(",") for line in (real_data / f"alog/train-fold-{fold}.txt").read_text().split()]
    assert train.nnz == len(lines) == 21_076
    stored = {tuple(c): v for c, v in zip(train.coords.tolist(), train.values.tolist(), strict=True)}
    assert stored == {tuple(int(i) - 1 for i in line[:3]): float(line[3]) for line in lines}
    assert np.count_nonzero(train.values == 0) == 10_538
    assert 6_600 < test.nnz < 6_612


def test_load_enron_is_binary_and_half_zeros(real_data):
    train, test = datasets.load_enron(2)
    assert train.shape == test.shape == (203, 203, 200)
    assert train.nnz == 1_010
    assert train.values.sum() == 505
    assert set(test.values) == {0.0, 1.0}


def test_load_fold_repeated_test_cells_are_there_once(real_data):
    coords, values = datasets.published_entries("alog/test-fold-1.txt")
    assert len(values) == 6_611
    test = datasets.load_alog(1).test
    assert test.nnz == len(np.unique(coords, axis=0)) == 6_610
    cells = {(*c, v) for c, v in zip(coords.tolist(), values.tolist(), strict=True)}
    assert cells == {(*c, v) for c, v in zip(test.coords.tolist(), test.values.tolist(), strict=True)}


def test_load_dblp_has_ones_and_fifty_test_sets_apart(real_data):
    dblp = datasets.load_dblp()
    assert dblp.train.shape == (10_000, 200, 10_000)
    assert dblp.train.nnz == 155_185
    assert (dblp.train.values == 1).all()
    assert len(dblp.tests) == 50
    assert {(t.nnz, t.values.sum()) for t in dblp.tests} == {(2_000, 200.0)}
    assert min(t.coords.min() for t in dblp.tests) == 0
    ones = set(map(tuple, dblp.train.coords.tolist()))
    assert not any(tuple(c) in ones for t in dblp.tests for c in t.coords.tolist())


@each(
    ("name", "shape", "ones"),
    [
        ("ionosphere", (351, 34), 225),
        ("sonar", (208, 60), 111),
        ("cancer", (683, 9), 239),
        ("crabs", (200, 7), 100),
        ("pima", (532, 7), 177),
        ("pima-with-duplicates", (732, 7), 245),
    ],
)
def test_load_gp_has_the_points_and_labels_of_the_files(real_data, name, shape, ones):
    X, y = datasets.load_gp(name)
    assert X.shape == shape
    assert X.dtype == np.float64
    assert (y.sum(), len(y)) == (ones, shape[0])


def test_pima_has_two_hundred_patients_twice(real_data):
    twice, once = datasets.load_gp("pima-with-duplicates").X, datasets.load_gp("pima").X
    assert len(np.unique(twice, axis=0)) == len(np.unique(once, axis=0)) == 532


def test_coal_mining_disasters_are_those_of_the_years():
    X, y = datasets.load_coal_mining()
    assert (X.shape, X[0, 0], X[-1, 0]) == ((112, 1), 1851.0, 1962.0)
    assert (y.sum(), y[:5].tolist(), y.max()) == (191, [4, 5, 4, 1, 0], 6)


def test_glass_and_wine_are_read_in_their_original_form(tmp_path):
    glass = tmp_path / "glass.data"
    glass.write_text("1,1.52,13.6,4.5,1.1,71.8,0.06,8.75,0,0,1\n2,1.5,13.9,3.6,1.4,72.7,0.48,7.83,0,0,7\n")
    X, y = datasets.read_glass(glass)
    assert (X.shape, y.tolist(), X[1, 0]) == ((2, 10), [1, 0], 2.0)
    wine = tmp_path / "wine.data"
    wine.write_text("".join(f"{c},{','.join(['1.5'] * 13)}\n" for c in (1, 2, 3, 3)))
    X, y = datasets.read_wine(wine, 1, 3)
    assert (X.shape, y.tolist()) == ((3, 13), [0, 1, 1])
    with pytest.raises(ValueError, match="must hold 11 numbers between commas in a line; got 14 in 1"):
        datasets.read_glass(wine)
    with pytest.raises(ValueError, match="second must be an integer from 1 to 3; got 4"):
        datasets.read_wine(wine, 1, 4)


def test_load_covid19_serology_has_labels():
    tensor = datasets.load_covid19_serology()
    assert tensor.shape == (438, 6, 11)
    assert tensor.nnz == 438 * 6 * 11
    samples, antigens, receptors = tensor.labels
    assert list(antigens) == ["S", "RBD", "N", "S1", "S2", "S1 Trimer"]
    assert receptors[0] == "IgG1"
    assert samples[0] == "Negative 0"
    assert samples[437] == "Deceased 437"


def test_load_il2_leaves_missing_cells_out():
    from tensorly.datasets import load_IL2data

    dense = load_IL2data().tensor
    tensor = datasets.load_il2()
    assert tensor.shape == dense.shape == (13, 4, 12, 8)
    assert tensor.nnz == np.count_nonzero(~np.isnan(dense)) < dense.size
    np.testing.assert_array_equal(dense[tuple(tensor.coords.T)], tensor.values)
    assert list(tensor.labels[1]) == [4.0, 2.0, 1.0, 0.5]


@each("fold", [0, 6, 1.0, "1", True])
def test_load_alog_refuses_other_folds(fold):
    with pytest.raises(ValueError, match=f"fold must be an integer from 1 to 5; got {fold!r}"):
        datasets.load_alog(fold)


def test_fetch_refuses_unknown_file():
    with pytest.raises(ValueError, match="file must be one of 'alog/test-fold-1.txt'"):
        datasets.fetch("alog/train.txt")


def test_fetch_takes_a_file_in_the_folder_without_pooch(data_folder, fake_registry, monkeypatch):
    fake_registry(b"1,2,3,1\n4,5,6,0\n")
    (data_folder / FILE).parent.mkdir(parents=True)
    (data_folder / FILE).write_bytes(b"1,2,3,1\n4,5,6,0\n")
    monkeypatch.setitem(sys.modules, "pooch", None)
    coords, values = datasets.published_entries(FILE)
    np.testing.assert_array_equal(coords, [[0, 1, 2], [3, 4, 5]])
    np.testing.assert_array_equal(values, [1.0, 0.0])


def test_fetch_refuses_a_changed_file_in_the_folder(data_folder, fake_registry):
    fake_registry(b"1,2,3,1\n")
    (data_folder / FILE).parent.mkdir(parents=True)
    (data_folder / FILE).write_bytes(b"1,2,3,0\n")
    with pytest.raises(
        ValueError, match=r"train-fold-1.txt' must have the SHA-256 [0-9a-f]{64}; got [0-9a-f]{64}; del"
    ):
        datasets.fetch(FILE)
    assert (data_folder / FILE).read_bytes() == b"1,2,3,0\n"


def test_fetch_downloads_once_and_then_reads_the_folder(data_folder, fake_registry, server):
    folder, url = server
    (folder / "x.txt").write_bytes(b"1,2,3,1\n")
    fake_registry(b"1,2,3,1\n", f"{url}/x.txt")
    assert not datasets.available()[1].cached
    assert datasets.fetch(FILE) == data_folder / FILE
    assert (data_folder / FILE).read_bytes() == b"1,2,3,1\n"
    assert datasets.available()[1].cached
    (folder / "x.txt").unlink()
    assert datasets.fetch(FILE) == data_folder / FILE


def test_fetch_refuses_a_download_with_a_wrong_checksum(data_folder, fake_registry, server):
    folder, url = server
    (folder / "x.txt").write_bytes(b"something else")
    fake_registry(b"1,2,3,1\n", f"{url}/x.txt")
    with pytest.raises(ValueError, match=f"the file at {url}/x.txt must have the SHA-256"):
        datasets.fetch(FILE)
    assert not (data_folder / FILE).exists()


def test_fetch_without_network_says_what_to_put_where(data_folder, fake_registry, server):
    _, url = server
    fake_registry(b"1,2,3,1\n", f"{url}/missing.txt")
    message = f"{FILE} could not be downloaded .*; download {url}/missing.txt and save it as {data_folder / FILE}, or"
    with pytest.raises(FileNotFoundError, match=message):
        datasets.fetch(FILE)


@pytest.mark.parametrize("variable", [True, False])
def test_fetch_without_pooch_names_the_extra_and_the_file(data_folder, monkeypatch, variable):
    if not variable:
        monkeypatch.delenv("TENSORCEP_DATA")
    monkeypatch.setitem(sys.modules, "pooch", None)
    url = re.escape(datasets.registry()[FILE]["url"])
    with pytest.raises(ImportError, match=rf"fetching {url} \(or else save it as {FILE} .*'tensorcep\[datasets\]'"):
        datasets.fetch(FILE)
    assert [info.cached for info in datasets.available()] == [*[False] * 6, True, True, True]


def test_fetch_keeps_files_in_the_cache_folder_of_the_user(fake_registry, server, monkeypatch, tmp_path):
    import pooch

    folder, url = server
    (folder / "x.txt").write_bytes(b"1,2,3,1\n")
    fake_registry(b"1,2,3,1\n", f"{url}/x.txt")
    monkeypatch.delenv("TENSORCEP_DATA", raising=False)
    monkeypatch.setattr(pooch, "os_cache", lambda name: tmp_path / "cache" / name)
    assert datasets.fetch(FILE) == tmp_path / "cache" / "tensorcep" / FILE


@each(("name", "n", "d"), [("australian", 208, 38), ("pima", 768, 8), ("sonar", 208, 60)])
def test_load_uci_halves_the_points(real_data, name, n, d):
    for link in datasets.LINKS:
        train, test = datasets.load_uci(name, link, 3)
        assert train.X.shape[1] == test.X.shape[1] == d
        assert (len(train.y), len(test.y)) == train.X.shape[:1] + test.X.shape[:1]
        assert len(train.y) + len(test.y) == n
        assert set(train.y) == set(test.y) == {0, 1}
    with pytest.raises(ValueError, match="fold must be an integer from 1 to 5; got 6"):
        datasets.load_uci(name, "probit", 6)


def test_load_simulation_has_a_posterior(real_data):
    found = datasets.load_simulation("logistic-2")
    assert found.train.X.shape == found.test.X.shape == (5000, 4)
    assert found.mean.shape == (4,)
    np.testing.assert_array_less(0.0, np.linalg.eigvalsh(found.cov))


def test_available_gives_the_size_of_the_download(data_folder):
    infos = {info.name: info for info in datasets.available()}
    assert infos["dblp"].size == 1_769_722
    assert infos["il2"].size == 0
    assert all(callable(getattr(datasets, f"load_{name}")) for name in infos)
