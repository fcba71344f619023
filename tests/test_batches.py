"""Functions of batches that other engines run, and rules that are verified where the data live."""

import pickle
import sqlite3

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset
import pytest
from sklearn.cluster import KMeans
from sklearn.datasets import load_wine

import neonxc
from neonxc.data.preparation import prepare
from neonxc.trees import ExShallow

WINE = load_wine(as_frame=True).data.rename(columns=lambda name: name.replace("/", "_"))
NET = neonxc.neuralize(KMeans(3, n_init=3, random_state=0).fit(WINE), WINE)
TREE = ExShallow(3).fit(WINE, labels=NET.predict(WINE))
RULES = TREE.tree_.rules()
BATCH = pa.RecordBatch.from_pandas(WINE.iloc[:, ::-1].assign(id=range(178)), preserve_index=False)


@pytest.mark.parametrize("stored", [False, True])
def test_attribution_of_batches(stored, tmp_path):
    neonxc.save(NET, tmp_path / "net.safetensors")
    function = neonxc.batch_function(tmp_path / "net.safetensors" if stored else NET, keep={"id": pa.int64()})
    sent = pickle.loads(pickle.dumps(function))
    found = sent(BATCH)
    assert isinstance(found, pa.RecordBatch)
    assert found.schema.equals(function.schema)
    frame = found.to_pandas()
    np.testing.assert_allclose(frame[[*WINE]], neonxc.NEON(NET).attribute(WINE))
    np.testing.assert_allclose(frame[[*WINE]].sum(axis=1), frame["logit"])
    assert (frame["cluster"] == NET.predict(WINE)).all()
    assert frame["id"].tolist() == [*range(178)]
    parts = [sent(BATCH.slice(first, 50)) for first in range(0, 200, 50)]
    pd.testing.assert_frame_equal(pa.Table.from_batches(parts).to_pandas(), frame)
    assert sent(BATCH.slice(0, 0)).schema.equals(function.schema)
    assert isinstance(sent(BATCH.to_pandas()), pd.DataFrame)
    assert isinstance(sent(pa.table(BATCH)), pa.Table)


def test_clusters_and_rules_of_batches():
    assert neonxc.batch_function(NET, "predict")(BATCH).schema.names == ["cluster", "logit"]
    for model in (TREE, TREE.tree_, RULES):
        found = neonxc.batch_function(model, "rules")(BATCH).to_pandas()
        assert (found["cluster"] == RULES.predict(WINE)).all()
        texts = {rule.text(): rule.label for rule in RULES}
        assert found["rule"].map(texts).eq(found["cluster"]).all()
    people = pd.DataFrame({"age": np.r_[20.0:50, 60:90], "town": ["Rome", "Oslo"] * 30})
    prepared = prepare(people)
    named = ExShallow(2).fit(people, labels=np.repeat(["young", "old"], 30))
    assert neonxc.batch_function(named, "rules").schema.field("cluster").type == pa.string()
    model = neonxc.neuralize(labels=np.repeat([0, 1], 30), X=prepared.frame)
    assert neonxc.batch_function(model)(pa.table(people)).column_names == ["cluster", "logit", "age", "town"]


def test_refused():
    with pytest.raises(ValueError, match="what needs one of"):
        neonxc.batch_function(NET, "explain")
    with pytest.raises(ValueError, match="model needs names of columns"):
        neonxc.batch_function(neonxc.neuralize(np.eye(3)))
    with pytest.raises(ValueError, match="several columns of one name"):
        neonxc.batch_function(NET, keep={"alcohol": pa.float64()})


def test_rules_are_verified_where_the_data_live():
    base = sqlite3.connect(":memory:")
    WINE.to_sql("wines", base, index=False)
    for found in (RULES.verify(base, "wines", "sqlite"), RULES.verify(WINE), RULES.verify(pa.table(WINE))):
        assert found["found"].tolist() == [int(rule.samples) for rule in RULES]
        assert found["fit"].equals(found["found"])
    base.execute("DELETE FROM wines WHERE proline > 1200")
    last = next(rule for rule in RULES if rule.matches(WINE.nlargest(1, "proline")).all())
    left = int(last.matches(WINE[WINE["proline"] <= 1200]).sum())
    with pytest.raises(ValueError, match=f"{int(last.samples)} rows at fit, {left} now"):
        RULES.verify(base, "wines")


def test_dialects():
    script = RULES.to_sql("wines", "databricks")
    assert script.dialects == ["mysql", "spark", "databricks"]
    assert script.startswith("-- SQL for mysql, spark, databricks\n")
    assert str(RULES.to_sql("wines", "postgres")) == str(RULES.to_sql("wines"))
    snow = ExShallow(2).fit(WINE, labels=np.repeat(["a'\\b", "c"], 89)).tree_.rules().to_sql("wines", "snowflake")
    assert "THEN 'a\\'\\\\b'" in snow.case
    assert '"proline"' in RULES.to_sql("wines", "snowflake").case


def test_trees_of_streams_that_can_be_read_again():
    labels, data = NET.predict(WINE), pyarrow.dataset.dataset(pa.table(WINE))
    for source in (lambda: data, data, lambda: pa.table(WINE), lambda: iter(data.to_batches())):
        found = ExShallow(3).fit(source, labels=labels)
        assert (found.predict(WINE) == TREE.predict(WINE)).all()
    once = pa.RecordBatchReader.from_batches(data.schema, data.to_batches())
    with pytest.raises(ValueError, match="a function needs to return a new iterator"):
        ExShallow(3).fit(lambda: once, labels=labels)
