"""Forms for what goes out of the vault as a backup, and for what comes in from elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, cast

from textual import on
from textual.widget import Widget
from textual.widgets import Input

from kortix_tui.console.forms.exposure_field import ExposureField
from kortix_tui.console.forms.files import KEYRING, path_of, read_file, write_private
from kortix_tui.console.forms.form import Act, Form, Incomplete, chosen, line
from kortix_tui.console.forms.key_forms import NewPassphrase
from kortix_tui.console.forms.secret_forms import MINE, PROJECTS, project_of
from kortix_tui.console.widgets.choice_field import ChoiceField
from kortix_tui.console.widgets.dialog import plain
from kortix_tui.console.widgets.masked_entry import MaskedEntry
from kortix_tui.runtime.secret_sources import Secret, import_file, read_env_file, read_keyring

if TYPE_CHECKING:
    from kortix_tui.console.app import KortixApp
    from kortix_tui.console.source import Source
    from kortix_tui.runtime.secret_views import ImportReport
    from kortix_tui.runtime.secrets import Secrets

_PASSPHRASE, _RECIPIENTS, _IDENTITY = "a passphrase", "age recipients", "an age identity file"
_EVERYTHING, _NOWHERE = "all projects", "nowhere: skip them"
_SKIP, _REPLACE = "skip it", "give it a new version"


class ExportForm(Form):
    """A backup in the age format, which the `age` program opens too."""

    sends = "writes it"
    working = "Writing…"

    def __init__(self, console: KortixApp, done: Callable[[tuple[Path, int]], None]) -> None:
        super().__init__(console, "A backup of the vault", done)

    def fields(self) -> Iterable[Widget]:
        """Where, what, for whom."""
        yield line("File", Input(id="path", placeholder="~/kortix-backup.age"))
        yield chosen("Secrets of", [_EVERYTHING, *(one.slug for one in self.console.facts.projects)], id="project")
        yield chosen("Opens with", [_PASSPHRASE, _RECIPIENTS], id="way")
        yield line("Recipients", Input(id="recipients", placeholder="age1…, others after a space"))
        yield from NewPassphrase.fields(self.console)
        yield plain("")
        yield plain("It holds every value. The age program opens it without this one; keep it as you keep the values.")

    def prepare(self) -> None:
        """What the first choice needs."""
        self._turned()

    @on(ChoiceField.Changed, "#way")
    def _turned(self) -> None:
        by_hand = self.choice("#way") == _PASSPHRASE
        self.show_only(recipients=not by_hand, new=by_hand, again=by_hand)

    def act(self) -> Act:
        """Write it."""
        if not self.text("#path"):
            raise Incomplete("Name a file.")
        path, slug = path_of(self.text("#path")), self.choice("#project")
        project_id = None if slug == _EVERYTHING else project_of(self.console, slug).id
        recipients: tuple[str, ...] = ()
        passphrase: Secret | None = None
        if self.choice("#way") == _PASSPHRASE:
            passphrase = NewPassphrase.read(self)
        else:
            recipients = tuple(self.text("#recipients").replace(",", " ").split())
            if not recipients:
                raise Incomplete("Name at least one recipient.")

        def write(source: Source) -> tuple[Path, int]:
            data = source.vault.export(passphrase=passphrase, recipients=recipients, project_id=project_id)
            write_private(path, data)
            return path, len(data)

        return write


class RestoreForm(Form):
    """Secrets from a backup."""

    sends = "reads it"
    working = "Reading…"

    def __init__(self, console: KortixApp, done: Callable[[ImportReport], None]) -> None:
        super().__init__(console, "Take secrets from a backup", done)

    def fields(self) -> Iterable[Widget]:
        """Which file, what opens it, what to do with what is here."""
        yield line("File", Input(id="path", placeholder="~/kortix-backup.age"))
        yield chosen("Opens with", [_PASSPHRASE, _IDENTITY], id="way")
        yield line("Identity", Input(id="identity", placeholder="~/.config/age/key.txt"))
        yield MaskedEntry("Passphrase", clock=self.console.clock.monotonic, id="passphrase")
        yield chosen("If known", [_SKIP, _REPLACE], id="known")
        yield chosen("Of others", [_NOWHERE, *(one.slug for one in self.console.facts.projects)], id="project")
        yield plain("Where secrets go whose project is not known here.", classes="meaning")

    def prepare(self) -> None:
        """What the first choice needs."""
        self._turned()

    @on(ChoiceField.Changed, "#way")
    def _turned(self) -> None:
        by_hand = self.choice("#way") == _PASSPHRASE
        self.show_only(passphrase=by_hand, identity=not by_hand)

    def act(self) -> Act:
        """Read it."""
        if not self.text("#path"):
            raise Incomplete("Name a file.")
        path, slug = path_of(self.text("#path")), self.choice("#project")
        project_id = None if slug == _NOWHERE else project_of(self.console, slug).id
        overwrite = self.choice("#known") == _REPLACE
        by_hand = self.choice("#way") == _PASSPHRASE
        passphrase = self.masked("#passphrase", "The passphrase") if by_hand else None
        if not by_hand and not self.text("#identity"):
            raise Incomplete("Name the identity file.")
        identity = path_of(self.text("#identity"))

        def read(source: Source) -> ImportReport:
            key = passphrase or Secret(read_file(identity))
            return source.vault.import_(
                read_file(path), key, identity=not by_hand, overwrite=overwrite, project_id=project_id
            )

        return read


class ImportForm(Form):
    """Values from a `.env` file, or one that another program keeps in the keyring."""

    sends = "stores them"
    working = "Reading…"

    def __init__(self, console: KortixApp, done: Callable[[ImportReport], None], *, project: str | None) -> None:
        super().__init__(console, "Take values from a file or the keyring", done)
        self._project = project

    def fields(self) -> Iterable[Widget]:
        """From where, into which project, exposed how."""
        yield line("From", Input(id="from", placeholder="~/project/.env, or keyring:SERVICE/USER"))
        yield line("Name", Input(id="name", placeholder="of what comes from the keyring"))
        yield chosen("Project", [one.slug for one in self.console.facts.projects], self._project, id="project")
        default = self.console.default_exposure.value
        usual = f"as your settings say: {default}; a known model provider's key: the model gateway only"
        yield ExposureField(usual=("as usual", usual), egress=False)
        yield chosen("Owner", [PROJECTS, MINE], id="owner")
        yield chosen("If known", [_SKIP, _REPLACE], id="known")

    def act(self) -> Act:
        """Store them."""
        origin, name = self.text("#from"), self.text("#name")
        if not origin:
            raise Incomplete("Say from where.")
        service, slash, user = origin.removeprefix(KEYRING).partition("/")
        keyring = origin.startswith(KEYRING)
        if keyring and not (service and slash and user):
            raise Incomplete("The keyring's entry is written keyring:SERVICE/USER.")
        if keyring and not name:
            raise Incomplete("What comes from the keyring needs a name.")
        project = project_of(self.console, self.choice("#project"))
        placement = self.query_one(ExposureField).placement
        only_me = self.choice("#owner") == MINE
        overwrite, default = self.choice("#known") == _REPLACE, self.console.default_exposure

        def store(source: Source) -> ImportReport:
            entries = (
                [(name, read_keyring(service, user))]
                if keyring
                else [(entry.name, entry.value) for entry in read_env_file(path_of(origin)).entries]
            )
            return import_file(
                cast("Secrets", source.secrets),  # the facade's own, or what tests hold to it
                project,
                entries,
                default=default,
                exposure=placement.exposure,
                only_me=only_me or None,
                overwrite=overwrite,
            )

        return store
