"""The files of the admin page: what no browser has to find out."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from actors.admin.page import INDEX, WEB, read_files

LINES_MAX = 400
SCRIPTS = sorted(WEB.glob("*.js"))
READS_HTML = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|srcdoc|DOMParser|\beval\b|new Function|javascript:|setHTML"
)


@pytest.mark.parametrize("path", sorted(WEB.iterdir()), ids=lambda path: path.name)
def test_nothing_is_read_as_html_or_asked_of_others(path: object) -> None:
    """Texts of clients become text and nothing else; no address of another place stands anywhere."""
    text = (WEB / str(path)).read_text(encoding="utf-8")
    assert READS_HTML.findall(text) == []
    assert set(re.findall(r"(?:https?:)?//[\w.-]+\.[\w/.-]+", text)) <= {"http://www.w3.org/2000/svg"}
    assert text.count("\n") <= LINES_MAX


def test_every_file_is_used_and_every_import_is_there() -> None:
    """What a script imports exists and exports it; each script is reached from the one that the index names."""
    texts = {path.name: path.read_text(encoding="utf-8") for path in SCRIPTS}
    imports = {
        name: {target: names for names, target in re.findall(r'^import \{ ([\w, ]+) \} from "\./(\w+\.js)";$', text, re.M)}
        for name, text in texts.items()
    }
    for name, found in imports.items():
        assert texts[name].count("\nimport ") + texts[name].startswith("import ") == len(found), name
        for target, names in found.items():
            for wanted in names.split(", "):
                assert re.search(rf"^export (async )?(function|const|class) {wanted}\b", texts[target], re.M), (
                    f"{name}: {wanted} of {target}"
                )
                assert len(re.findall(rf"\b{wanted}\b", texts[name])) > 1, f"{name}: {wanted} is not used"
    reached, new = set[str](), {"main.js"}
    while new:
        reached |= new
        new = {target for name in new for target in imports[name]} - reached
    assert reached | {"theme.js"} == set(texts)


def test_the_index_names_all_that_it_is_made_of() -> None:
    """Each module is asked for at once; styles and the icon are there; etags tell bodies apart."""
    found = read_files()
    files, index = found.by_name, found.by_name[INDEX].body.decode()
    named = set(re.findall(rf'(?:href|src)="/page/{found.version}/([\w.]+)"', index))
    assert named == set(files) - {INDEX}
    assert len({file.etag for file in files.values()}) == len(files)


def test_another_page_has_another_version(tmp_path: Path) -> None:
    """A browser that kept the parts of one does not show them for the other."""
    shutil.copytree(WEB, tmp_path / "web")
    assert read_files(tmp_path / "web") == read_files()
    (tmp_path / "web" / "dom.js").write_bytes(b"// another one")
    changed = read_files(tmp_path / "web")
    assert changed.version != read_files().version and changed.by_name[INDEX].etag != read_files().by_name[INDEX].etag
