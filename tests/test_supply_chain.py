"""What the product is made of: no dangerous calls, pages without strangers, versions pinned."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("helixweb", "runtime", "planner")
# Modules whose reading of data is running it.
UNSAFE_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal", "jsonpickle"}
UNSAFE_CALLS = {
    "eval", "exec", "compile", "__import__", "os.system", "os.popen", "torch.load",
    "asyncio.create_subprocess_shell", "subprocess.getoutput", "subprocess.getstatusoutput",
    "yaml.unsafe_load", "yaml.full_load",
}  # fmt: skip
SAFE_LOADERS = {"_StrictLoader", "SafeLoader", "yaml.SafeLoader", "CSafeLoader"}


def sources() -> Iterator[tuple[Path, ast.AST]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield path, ast.parse(path.read_text())


def imported(node: ast.AST) -> set[str]:
    if isinstance(node, ast.Import):
        return {alias.name.split(".")[0] for alias in node.names}
    if isinstance(node, ast.ImportFrom):
        return {(node.module or "").split(".")[0]}
    return set()


def dangers(node: ast.AST) -> Iterator[str]:
    """What the call is that it should not be."""
    if not isinstance(node, ast.Call):
        return
    name = ast.unparse(node.func)
    if name in UNSAFE_CALLS:
        yield name
    for keyword in node.keywords:
        value = ast.unparse(keyword.value)
        if keyword.arg == "shell" and value == "True":
            yield f"{name}(shell=True)"
        if keyword.arg == "trust_remote_code" and value != "False":
            yield f"{name}(trust_remote_code={value})"
        if keyword.arg == "verify" and value == "False":
            yield f"{name}(verify=False)"
    if name in ("yaml.load", "yaml.load_all"):
        loaders = {ast.unparse(word.value) for word in node.keywords if word.arg == "Loader"}
        if not loaders or not loaders <= SAFE_LOADERS:
            yield f"{name} without a safe loader"


@pytest.mark.slow
def test_the_product_reads_nothing_by_running_it() -> None:
    found = []
    for path, tree in sources():
        for node in ast.walk(tree):
            what = [*(imported(node) & UNSAFE_MODULES), *dangers(node)]
            found += [f"{path.relative_to(ROOT)}: {one}" for one in what]
    assert found == []


def test_the_search_for_dangers_finds_them() -> None:
    for text in (
        "import pickle", "from marshal import loads", "eval(x)", "os.system('x')",
        "run(x, shell=True)", "yaml.load(x)", "yaml.load(x, Loader=yaml.Loader)",
        "f(trust_remote_code=True)", "httpx.get(u, verify=False)", "torch.load(p)",
    ):  # fmt: skip
        nodes = list(ast.walk(ast.parse(text)))
        assert any(imported(node) & UNSAFE_MODULES or list(dangers(node)) for node in nodes), text


@pytest.mark.parametrize("folder", ["templates", "static"])
def test_pages_fetch_nothing_from_elsewhere(folder: str) -> None:
    fetched = re.compile(
        r"""(?:src|srcset|poster|action)\s*=\s*["']?\s*(?:https?:)?//|<link[^>]+href\s*=\s*["']?\s*"""
        r"""(?:https?:)?//|@import|url\(\s*["']?(?:https?:)?//|import\s*\(?\s*["']https?:"""
    )
    read = 0
    for path in (ROOT / folder).rglob("*"):
        if path.suffix in (".html", ".css", ".js", ".svg"):
            read += 1
            assert not fetched.search(path.read_text()), path
    assert read > 10


def test_templates_escape_and_run_no_script_of_their_own_without_a_nonce() -> None:
    for path in (ROOT / "templates").rglob("*.html"):
        text = path.read_text()
        assert not re.search(r"\|\s*safe\b|autoescape\s+off|\|\s*safeseq\b", text), path
        for tag in re.findall(r"<script[^>]*>", text):
            assert "src=" in tag or "nonce" in tag or 'type="application/json"' in tag, (path, tag)
        assert not re.search(r"<[^>]+\son[a-z]+\s*=", text), path


def test_scripts_put_what_they_are_told_into_pages_as_text() -> None:
    markup = re.compile(
        r"\b(?:inner|outer)HTML\b|insertAdjacentHTML|document\.write|\beval\(|new Function\b"
        r"|setTimeout\(\s*[\"'`]|createContextualFragment|DOMParser"
    )
    for path in (ROOT / "static").rglob("*.js"):
        assert not markup.search(path.read_text()), path


def test_the_project_says_under_which_licence_it_may_be_used() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["license"] == "Apache-2.0"
    (licence,) = project["license-files"]
    assert "Apache License" in (ROOT / licence).read_text()[:200]
    assert licence in (ROOT / "MANIFEST.in").read_text()
    assert project["authors"]
    assert {"Homepage", "Documentation", "Changelog", "Issues"} <= set(project["urls"])


def test_every_package_that_is_asked_for_has_a_version_that_was_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"]]
    for extra in project["optional-dependencies"].values():
        wanted += extra
    pinned = {
        line.split("==")[0].lower().replace("_", "-")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if "==" in line
    }
    names = {re.split(r"[\[<>=!~; ]", one)[0].lower().replace("_", "-") for one in wanted}
    names = {name for name in names if not name.startswith("helixweb")}
    assert names - pinned == set()
