"""View 4: all secrets, and the map of where the selected one may be and is. No value is ever here to be drawn."""

from __future__ import annotations

from textual import events, on
from textual.app import ComposeResult

from kortix_tui.base.errors import KortixError
from kortix_tui.base.words import VaultState
from kortix_tui.console.actions import Where
from kortix_tui.console.facts import Facts
from kortix_tui.console.keymap import bindings
from kortix_tui.console.screens import secret_acts, vault_acts
from kortix_tui.console.screens.secret_pages import secret_page
from kortix_tui.console.screens.secret_rows import SECRET_COLUMNS, secret_row, vault_line
from kortix_tui.console.screens.view import DetailBar, ViewScreen
from kortix_tui.console.widgets.pane import Pane
from kortix_tui.console.widgets.table import VirtualTable
from kortix_tui.console.widgets.text_pane import TextPane
from kortix_tui.runtime.secret_views import SecretDetail, SecretView

NEEDS_SECRET = (
    "secret.show", "secret.rotate", "secret.expose", "secret.grant", "secret.share", "secret.unset",
)  # fmt: skip
NEEDS_VAULT = (
    "vault.lock", "vault.unlock", "vault.export", "vault.import", "vault.passphrase", "vault.add_key",
    "vault.remove_key", "vault.recovery", "vault.rotate", "vault.verify", "vault.repair",
)  # fmt: skip


class VaultScreen(ViewScreen):
    """The vault's state in a line, the list, the page of the selected secret."""

    BINDINGS = bindings(Where.VAULT)
    DEFAULT_CSS = """
    VaultScreen #list { height: 2fr; min-height: 5; }
    VaultScreen #page-pane { height: 3fr; }
    """
    view = "Vault"
    places = (Where.VAULT, Where.LIST, Where.MOVE, Where.ALL)

    def __init__(self) -> None:
        super().__init__()
        empty = "No secret yet. Press n for a new one; I takes them from a .env file."
        self._table = VirtualTable(SECRET_COLUMNS, empty=empty, id="secrets")
        self._list = Pane("Secrets", self._table, id="list")
        self._page = TextPane(id="page")
        self._page_pane = Pane("Nothing is selected", self._page, id="page-pane")
        self._state = DetailBar(id="state")
        self._on_page: tuple[SecretView, SecretDetail | None, int] | None = None
        self._detail: SecretDetail | None = None
        self._reading: SecretView | None = None
        self._pending_select: str | None = None

    def compose_body(self) -> ComposeResult:
        """State, list, page."""
        yield self._state
        yield self._list
        yield self._page_pane

    def on_mount(self) -> None:
        """The list has the focus."""
        self._table.focus()

    def on_resize(self, event: events.Resize) -> None:
        """The page is wrapped anew."""
        super().on_resize(event)
        self.call_after_refresh(self._show_page)

    # Facts.

    def take_facts(self, facts: Facts) -> None:
        """State, rows and page follow the facts."""
        super().take_facts(facts)
        self._state.show(vault_line(facts.vault))
        now = self.kortix.clock.now()
        self._table.set_rows(secret_row(secret, now) for secret in facts.secrets)
        if self._pending_select is not None and facts.secret(self._pending_select):
            self._table.resort()
            self._table.select(self._pending_select)
            self._pending_select = None
        self.retitle()
        self._show_page()
        self.refresh_bindings()

    def retitle(self) -> None:
        """Counts and the filter in the title."""
        self._list.rule.title = self._table.heading("Secrets")

    def select_when_there(self, secret_id: str) -> None:
        """Put the cursor on a secret as soon as it is in the list."""
        self._pending_select = secret_id

    @property
    def selected(self) -> SecretView | None:
        """The secret under the cursor."""
        return self.kortix.facts.secret(self._table.cursor)

    @on(VirtualTable.Highlighted, "#secrets")
    def _selected(self) -> None:
        self._show_page()
        self.refresh_bindings()

    def _show_page(self) -> None:
        secret = self.selected
        if secret is None:
            self._on_page = None
            self._page.show([])
            self._page_pane.rule.title = "Nothing is selected"
            return
        self._read(secret)
        detail = self._detail if self._detail and self._detail.secret.id == secret.id else None
        before, self._on_page = self._on_page, (secret, detail, self._page.size.width)
        if self._on_page != before:
            same = before is not None and before[0].id == secret.id
            self._page.show(
                secret_page(secret, detail, self.kortix.clock.now(), self._page.size.width), keep_place=same
            )
            self._page_pane.rule.title = f"{secret.identifier}: who may have it, who has it"

    def _read(self, secret: SecretView) -> None:
        """Read who may have it and why. That takes git: one at a time, and again only when the secret has changed."""
        project = self.kortix.facts.project(secret.project)
        if project is None or self._reading is not None or (self._detail and self._detail.secret == secret):
            return
        self._reading = secret
        self.kortix.bridge.submit(
            lambda source: source.secrets.show(project, secret.identifier), self._have, self._not_read
        )

    def _not_read(self, error: KortixError) -> None:
        self.say_failed(error)
        self._have(None)

    def _have(self, detail: SecretDetail | None) -> None:
        read, self._reading = self._reading, None
        if detail is not None and read is not None:
            # What the list has decides when to read again, so that two sources never chase each other.
            self._detail = detail.model_copy(update={"secret": read})
        if self.is_attached and (detail is not None or self.selected != read):
            self._show_page()

    def unavailable(self) -> dict[str, str]:
        """What does not fit the selected secret or the vault's state."""
        reasons: dict[str, str] = {}
        if self.selected is None:
            reasons.update(dict.fromkeys(NEEDS_SECRET, "no secret is selected"))
        state = self.kortix.facts.vault_state
        if state is None:
            return reasons | dict.fromkeys([*NEEDS_VAULT, "vault.init", "vault.status"], "the vault is being read")
        if state is VaultState.MISSING:
            vault = self.kortix.facts.vault
            lost = vault is not None and vault.reason is not None
            reasons |= dict.fromkeys(NEEDS_VAULT, "its file is gone" if lost else "there is no vault yet")
            if lost:  # what was there before may still be beside it
                del reasons["vault.repair"]
            return reasons
        reasons["vault.init"] = "there is a vault"
        if state is not VaultState.LOCKED:
            reasons["vault.unlock"] = f"it is {state.value}"
        if state is not VaultState.UNLOCKED:
            reasons["vault.lock"] = f"it is {state.value}"
        if state in (VaultState.UNLOCKED, VaultState.LOCKED):
            reasons["vault.repair"] = "nothing is wrong with it"
        return reasons

    # Acts on secrets.

    @on(VirtualTable.Selected, "#secrets")
    def _opened(self) -> None:
        self.action_secret_show()

    def action_secret_show(self) -> None:
        """To its page."""
        if self.selected is not None:
            self._page.focus()

    def action_secret_new(self) -> None:
        """A new one."""
        secret_acts.new(self.kortix, self._project)

    def action_secret_import(self) -> None:
        """Values from elsewhere."""
        secret_acts.import_values(self.kortix, self._project)

    @property
    def _project(self) -> str | None:
        return self.selected.project if self.selected else None

    def action_secret_rotate(self) -> None:
        """A new value."""
        if self.selected is not None:
            secret_acts.rotate(self.kortix, self.selected)

    def action_secret_expose(self) -> None:
        """Another exposure."""
        if self.selected is not None:
            secret_acts.expose(self.kortix, self.selected)

    def action_secret_grant(self) -> None:
        """Let an agent have it."""
        if self.selected is not None:
            secret_acts.grant(self.kortix, self.selected)

    def action_secret_share(self) -> None:
        """Another owner."""
        if self.selected is not None:
            secret_acts.share(self.kortix, self.selected)

    def action_secret_unset(self) -> None:
        """Forget it."""
        if self.selected is not None:
            secret_acts.unset(self.kortix, self.selected)

    def action_secret_requests(self) -> None:
        """To what agents ask for."""
        self.kortix.go_view("inbox", "kind:secret")

    # Acts on the vault.

    def action_vault_init(self) -> None:
        """Make it."""
        vault_acts.init(self.kortix)

    def action_vault_status(self) -> None:
        """Its page."""
        vault_acts.show_status(self.kortix)

    def action_vault_unlock(self) -> None:
        """Open it."""
        vault_acts.unlock(self.kortix)

    def action_vault_lock(self) -> None:
        """Forget the keys."""
        vault_acts.lock(self.kortix)

    def action_vault_passphrase(self) -> None:
        """Another passphrase."""
        vault_acts.set_passphrase(self.kortix)

    def action_vault_add_key(self) -> None:
        """One more key."""
        vault_acts.add_key(self.kortix)

    def action_vault_remove_key(self) -> None:
        """One key less."""
        vault_acts.remove_key(self.kortix)

    def action_vault_recovery(self) -> None:
        """Another recovery key."""
        vault_acts.new_recovery(self.kortix)

    def action_vault_rotate(self) -> None:
        """New keys for everything."""
        vault_acts.rotate(self.kortix)

    def action_vault_verify(self) -> None:
        """Check every record."""
        vault_acts.verify(self.kortix)

    def action_vault_repair(self) -> None:
        """Make it usable."""
        vault_acts.repair(self.kortix)

    def action_vault_export(self) -> None:
        """Write a backup."""
        vault_acts.export(self.kortix)

    def action_vault_import(self) -> None:
        """Read a backup."""
        vault_acts.restore(self.kortix)
