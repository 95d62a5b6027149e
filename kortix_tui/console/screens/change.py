"""One change request to read and decide: files, unified diff, what a merge would do."""

from __future__ import annotations

from dataclasses import dataclass

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal

from kortix_tui.base.text import visible_line
from kortix_tui.base.words import ChangeStatus
from kortix_tui.console.actions import Where
from kortix_tui.console.facts import Facts
from kortix_tui.console.keymap import bindings
from kortix_tui.console.screens.merging import ask_close, ask_merge, reopen
from kortix_tui.console.screens.rows import SHORT_COMMIT
from kortix_tui.console.screens.view import DetailBar, ViewScreen
from kortix_tui.console.source import Source
from kortix_tui.console.widgets.bar import Part
from kortix_tui.console.widgets.diff_view import DiffView
from kortix_tui.console.widgets.pager import Pager
from kortix_tui.console.widgets.pane import Pane
from kortix_tui.console.widgets.patch import PatchFile, PatchModel
from kortix_tui.console.widgets.table import Cell, Column, Row, VirtualTable
from kortix_tui.runtime.views import ChangeDetail, ChangeView, MergePreview
from kortix_tui.store.models import Project

FILE_COLUMNS = (
    Column("sign", "", 1),
    Column("path", "FILE", 14, grow=True),
    Column("size", "+/-", 9, priority=1, right=True),
)


@dataclass(frozen=True)
class Reading:
    """A change request with its diff, both of one head."""

    detail: ChangeDetail
    model: PatchModel


def read_change(source: Source, project: Project, number: int) -> Reading:
    """Get and parse everything; blocks, so the bridge calls it."""
    detail = source.changes.show(project, number)
    patch = source.changes.patch(project, number, head=detail.head_commit)
    return Reading(detail, PatchModel.parse(patch))


class ChangeScreen(ViewScreen):
    """Stands on top of the list that it was opened from."""

    BINDINGS = bindings(Where.CHANGES, Where.CHANGE)
    DEFAULT_CSS = """
    ChangeScreen #files-pane { width: 38; display: none; margin-right: 1; }
    ChangeScreen.-normal #files-pane, ChangeScreen.-two #files-pane, ChangeScreen.-wide #files-pane { display: block; }
    ChangeScreen.-wide #files-pane { width: 56; }
    ChangeScreen.files-hidden #files-pane { display: none; }
    ChangeScreen.files-shown #files-pane { display: block; }
    """
    places = (Where.CHANGE, Where.CHANGES, Where.DIFF, Where.PAGER, Where.MOVE, Where.ALL)

    def __init__(self, view: str, project: Project, number: int, *, notice: str = "") -> None:
        """Make the screen.

        Args:
            view: Name of the tab that it belongs to.
            project: Whose change request.
            number: Its number.
            notice: What to say when it opens.
        """
        super().__init__()
        self._notice = notice
        self.view = view
        self._project = project
        self._number = number
        self._reading: Reading | None = None
        self._busy = False
        self._table = VirtualTable(FILE_COLUMNS, empty="No file.", header=False, id="files")
        self._files = Pane("Files", self._table, id="files-pane")
        self._diff = DiffView(empty="Reading…", id="diff")
        self._diff_pane = Pane(f"Change request {number}", self._diff, id="diff-pane")
        self._facts_bar = DetailBar(id="facts")
        self._state_bar = DetailBar(id="state")

    def compose_body(self) -> ComposeResult:
        """Facts, files beside the diff."""
        yield self._facts_bar
        with Horizontal(id="panes"):
            yield self._files
            yield self._diff_pane
        yield self._state_bar

    def on_mount(self) -> None:
        """Read it."""
        self._diff.focus()
        self._show_facts()
        if self._notice:
            self.say(self._notice, "muted")
        self._read()

    def _read(self) -> None:
        if self._busy:
            return
        self._busy = True
        project, number = self._project, self._number
        self.kortix.bridge.submit(lambda source: read_change(source, project, number), self._have, self._failed)

    def _have(self, reading: Reading) -> None:
        self._busy = False
        if not self.is_attached:
            return
        self._reading = reading
        self._diff.show(reading.model, empty="This change request changes nothing.")
        self._table.set_rows((_file_row(index, file) for index, file in enumerate(reading.model.files)), resort=True)
        self._table.repaint()
        self._files.rule.title = f"Files [{len(reading.model.files)}]"
        self._show_facts()
        self.refresh_bindings()

    def _failed(self, error: Exception) -> None:
        self._busy = False
        if self.is_attached:
            self._diff.show(PatchModel(), empty="It cannot be read now.")
            self.say(str(error), "error", keep=True)

    # Facts.

    @property
    def change(self) -> ChangeView | None:
        """The change request as it is now."""
        for change in self.kortix.facts.changes:
            if change.number == self._number and change.project == self._project.slug:
                return change
        return self._reading.detail.change if self._reading else None

    @property
    def moved(self) -> bool:
        """Whether it has another head now than the one that is shown."""
        change = self.change
        return bool(self._reading and change and change.head_commit != self._reading.detail.head_commit)

    def take_facts(self, facts: Facts) -> None:
        """Say when it moved or was decided."""
        super().take_facts(facts)
        self._show_facts()
        self.refresh_bindings()

    def _show_facts(self) -> None:
        change = self.change
        if change is None:
            self._facts_bar.show([Part(f" Change request {self._number} of {self._project.slug}", "title")])
            return
        head = self._reading.detail.head_commit if self._reading else change.head_commit
        self._facts_bar.show(
            [
                Part(f" #{change.number} ", "accent"),
                Part(visible_line(change.title), "title"),
                Part(f"  {head[:SHORT_COMMIT]} → {visible_line(change.base_branch)}", "muted"),
            ]
        )
        if self._reading:
            model = self._reading.model
            self._diff_pane.rule.title = f"unified  +{model.additions} -{model.deletions}"
        self._state_bar.show(self._state(change))

    def _state(self, change: ChangeView) -> list[Part]:
        if change.status is ChangeStatus.MERGED:
            commit = (change.merge_commit or "")[:SHORT_COMMIT]
            return [Part(f" ✔ merged as {commit} by {visible_line(change.decided_by or '?')}", "success")]
        if change.status is ChangeStatus.CLOSED:
            return [Part(f" ■ closed by {visible_line(change.decided_by or '?')}; r reopens", "state.stopped")]
        if self._reading is None:
            return [Part(" Reading…", "muted")]
        if self.moved:
            text = f" ! moved to {change.head_commit[:SHORT_COMMIT]} since you opened it: press R and look again"
            return [Part(text, "state.waiting")]
        hidden = self._reading.model.hidden
        warning = [Part(f" ⚠ {hidden} line{'s' * (hidden > 1)} with hidden characters  ", "warning")] if hidden else []
        return warning + _preview_parts(self._reading.detail.preview)

    def unavailable(self) -> dict[str, str]:
        """What does not work now, and why."""
        change = self.change
        if change is None or self._reading is None:
            return dict.fromkeys(("change.merge", "change.close", "change.reopen"), "it is being read")
        if change.status is not ChangeStatus.OPEN:
            reasons = dict.fromkeys(("change.merge", "change.close"), f"it is {change.status.value}")
            if change.status is ChangeStatus.MERGED:
                reasons["change.reopen"] = "it is merged"
            return reasons
        reasons = {"change.reopen": "it is open", "change.open": "this is it"}
        preview = self._reading.detail.preview
        if self.moved:
            reasons["change.merge"] = "it moved; press R and look again"
        elif preview is not None and not preview.can_merge:
            reasons["change.merge"] = "it cannot be merged as it is"
        return reasons

    # Acts.

    def action_view_refresh(self) -> None:
        """Look at the newest head."""
        self.say("Reading again…", "muted")
        self.kortix.bridge.read_again()
        self._read()

    def action_change_merge(self) -> None:
        """Merge exactly what is shown."""
        if self._reading is not None and "change.merge" not in self.unavailable():
            ask_merge(self.kortix, self._reading.detail)

    def action_change_close(self) -> None:
        """Close it."""
        change = self.change
        if change is not None:
            ask_close(self.kortix, change)

    def action_change_reopen(self) -> None:
        """Reopen it."""
        change = self.change
        if change is not None:
            reopen(self.kortix, change)

    def action_change_files(self) -> None:
        """Show or hide the file list."""
        shown = bool(self._files.display)
        self.set_class(shown, "files-hidden")
        self.set_class(not shown, "files-shown")
        (self._diff if shown else self._table).focus()

    # The list follows the diff, and the diff the list.

    @on(VirtualTable.Highlighted, "#files")
    def _file_chosen(self, event: VirtualTable.Highlighted) -> None:
        if event.row_id is not None and self._table.has_focus:
            self._diff.go_to_file(int(event.row_id))

    @on(VirtualTable.Selected, "#files")
    def _file_opened(self, event: VirtualTable.Selected) -> None:
        self._diff.go_to_file(int(event.row_id))
        self._diff.focus()

    @on(Pager.Moved, "#diff")
    def _diff_moved(self) -> None:
        index = self._diff.file_index
        if index is not None and not self._table.has_focus:
            self._table.select(str(index))


def _preview_parts(preview: MergePreview | None) -> list[Part]:
    if preview is None:
        return [Part(" ")]
    if preview.up_to_date:
        return [Part(" · nothing to merge: the base has all of it", "muted")]
    if preview.conflicts:
        named = ", ".join(visible_line(path) for path in preview.conflicts[:3])
        more = f" and {len(preview.conflicts) - 3} more" if len(preview.conflicts) > 3 else ""
        return [Part(f" ✘ conflicts in {named}{more}", "error")]
    if preview.manifest_faults:
        return [Part(f" ✘ kortix.yaml would not be valid: {visible_line(preview.manifest_faults[0])}", "error")]
    if preview.refusal:
        return [Part(f" ✘ {visible_line(preview.refusal)}", "error")]
    if preview.can_merge:
        how = ", nothing else happened on the base" if preview.fast_forward else ""
        return [Part(f" ✔ merges cleanly{how}", "success")]
    return [Part(" ✘ cannot be merged as it is", "error")]


def _file_row(index: int, file: PatchFile) -> Row:
    roles = {"A": "success", "D": "error", "R": "state.provisioning", "C": "state.provisioning", "M": "accent"}
    size = "binary" if file.binary else f"+{file.additions} -{file.deletions}"
    return Row(
        str(index),
        {
            "sign": Cell("⚠" if file.hidden else file.sign, "warning" if file.hidden else roles[file.sign]),
            "path": Cell(file.path, order=index),
            "size": Cell(size, "muted"),
        },
        text=file.path,
    )
