"""The tables. One migration a version; each runs in one transaction."""

from __future__ import annotations

from typing import Final

HOUSEKEEPING: Final = frozenset({"meta", "host", "vault", "views", "seen"})
"""Tables whose rows are no state of the world: heartbeats, counters, what was shown to whom, what the present host can
do with the vault. Changing any other table
without an audit event in the same transaction is an error that the store refuses to commit."""

MIGRATIONS: Final[tuple[str, ...]] = (
    """
    CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

    CREATE TABLE host (
        id INTEGER PRIMARY KEY CHECK (id = 1), epoch INTEGER NOT NULL, pid INTEGER NOT NULL, kind TEXT NOT NULL,
        started_at TEXT NOT NULL, beat_at TEXT NOT NULL
    );

    CREATE TABLE projects (
        id TEXT PRIMARY KEY, slug TEXT NOT NULL, source TEXT NOT NULL, kind TEXT NOT NULL, base_branch TEXT NOT NULL,
        base_commit TEXT, owner TEXT NOT NULL, next_number INTEGER NOT NULL DEFAULT 1,
        created_at TEXT NOT NULL, fetched_at TEXT, removed_at TEXT
    );
    CREATE UNIQUE INDEX projects_slug ON projects (slug) WHERE removed_at IS NULL;

    CREATE TABLE sessions (
        id TEXT PRIMARY KEY, project_id TEXT NOT NULL REFERENCES projects (id), title TEXT NOT NULL,
        agent TEXT NOT NULL,
        status TEXT NOT NULL, activity TEXT NOT NULL, wanted TEXT NOT NULL, reason TEXT, reason_text TEXT,
        base_branch TEXT NOT NULL, base_commit TEXT, head_commit TEXT, template TEXT, image TEXT, plan TEXT,
        idle_minutes REAL NOT NULL, owner TEXT NOT NULL, origin TEXT NOT NULL,
        files INTEGER NOT NULL DEFAULT 0, additions INTEGER NOT NULL DEFAULT 0, deletions INTEGER NOT NULL DEFAULT 0,
        channel_key TEXT, agent_token TEXT NOT NULL,
        created_at TEXT NOT NULL, updated_at TEXT NOT NULL, active_at TEXT NOT NULL, started_at TEXT, stopped_at TEXT,
        removed_at TEXT
    );
    CREATE INDEX sessions_project ON sessions (project_id, created_at);
    CREATE INDEX sessions_live ON sessions (status, wanted);

    CREATE TABLE prompts (
        id TEXT PRIMARY KEY, session_id TEXT NOT NULL REFERENCES sessions (id), n INTEGER NOT NULL, text TEXT NOT NULL,
        state TEXT NOT NULL, exit_code INTEGER, message TEXT, created_by TEXT NOT NULL,
        created_at TEXT NOT NULL, started_at TEXT, ended_at TEXT, UNIQUE (session_id, n)
    );
    CREATE INDEX prompts_open ON prompts (state, session_id);

    CREATE TABLE heads (
        session_id TEXT NOT NULL REFERENCES sessions (id), n INTEGER NOT NULL, commit_id TEXT NOT NULL,
        at TEXT NOT NULL, PRIMARY KEY (session_id, n)
    ) WITHOUT ROWID;

    CREATE TABLE rescues (
        session_id TEXT NOT NULL REFERENCES sessions (id), n INTEGER NOT NULL, commit_id TEXT NOT NULL,
        ref TEXT NOT NULL,
        reason TEXT NOT NULL, files INTEGER NOT NULL, at TEXT NOT NULL, PRIMARY KEY (session_id, n)
    ) WITHOUT ROWID;

    CREATE TABLE change_requests (
        id TEXT PRIMARY KEY, project_id TEXT NOT NULL REFERENCES projects (id), number INTEGER NOT NULL,
        session_id TEXT NOT NULL REFERENCES sessions (id), title TEXT NOT NULL, description TEXT NOT NULL,
        status TEXT NOT NULL, base_branch TEXT NOT NULL, base_commit TEXT NOT NULL, head_commit TEXT NOT NULL,
        files INTEGER NOT NULL, additions INTEGER NOT NULL, deletions INTEGER NOT NULL,
        merge_commit TEXT, reviewed_head TEXT, opened_by TEXT NOT NULL, decided_by TEXT,
        created_at TEXT NOT NULL, updated_at TEXT NOT NULL, decided_at TEXT, UNIQUE (project_id, number)
    );
    CREATE INDEX changes_status ON change_requests (status, created_at);
    CREATE UNIQUE INDEX changes_one_open ON change_requests (session_id) WHERE status = 'open';

    CREATE TABLE merges (
        id TEXT PRIMARY KEY, change_id TEXT NOT NULL REFERENCES change_requests (id), reviewed_head TEXT NOT NULL,
        base_before TEXT NOT NULL, merge_commit TEXT NOT NULL, state TEXT NOT NULL, message TEXT,
        performed_by TEXT NOT NULL, created_at TEXT NOT NULL, ended_at TEXT
    );
    CREATE INDEX merges_open ON merges (state) WHERE state = 'intent';

    CREATE TABLE views (
        change_id TEXT NOT NULL REFERENCES change_requests (id), operator TEXT NOT NULL, head_commit TEXT NOT NULL,
        at TEXT NOT NULL, PRIMARY KEY (change_id, operator)
    ) WITHOUT ROWID;

    CREATE TABLE seen (
        performed_by TEXT NOT NULL, event TEXT NOT NULL, scope TEXT NOT NULL, at TEXT NOT NULL,
        PRIMARY KEY (performed_by, event, scope)
    ) WITHOUT ROWID;

    CREATE TABLE requests (
        id TEXT PRIMARY KEY, kind TEXT NOT NULL, payload TEXT NOT NULL, state TEXT NOT NULL, result TEXT, error TEXT,
        actor TEXT NOT NULL, created_at TEXT NOT NULL, started_at TEXT, ended_at TEXT
    );
    CREATE INDEX requests_open ON requests (state, created_at);

    CREATE TABLE audit (
        seq INTEGER PRIMARY KEY, at TEXT NOT NULL, event TEXT NOT NULL, scope TEXT NOT NULL, performed_by TEXT NOT NULL,
        actor TEXT NOT NULL, outcome TEXT NOT NULL, project_id TEXT, session_id TEXT, detail TEXT NOT NULL,
        prev TEXT NOT NULL, hash TEXT NOT NULL
    );
    CREATE INDEX audit_session ON audit (session_id, seq);
    CREATE TRIGGER audit_no_update BEFORE UPDATE ON audit BEGIN
        SELECT RAISE(ABORT, 'the audit log is append-only'); END;
    CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit BEGIN
        SELECT RAISE(ABORT, 'the audit log is append-only'); END;
    """,
    """
    CREATE TABLE vault (
        id INTEGER PRIMARY KEY CHECK (id = 1), vault_id TEXT, generation INTEGER NOT NULL, mac TEXT NOT NULL,
        state TEXT NOT NULL, reason TEXT, asked INTEGER NOT NULL, since TEXT NOT NULL
    );

    CREATE TABLE secrets (
        id TEXT PRIMARY KEY, project_id TEXT NOT NULL REFERENCES projects (id), identifier TEXT NOT NULL,
        name TEXT NOT NULL, owner TEXT NOT NULL, exposure TEXT NOT NULL, gateway INTEGER NOT NULL, hosts TEXT NOT NULL,
        version INTEGER NOT NULL, created_by TEXT NOT NULL, created_at TEXT NOT NULL, rotated_at TEXT NOT NULL,
        used_at TEXT, plain_at TEXT, removed_at TEXT
    );
    CREATE UNIQUE INDEX secrets_identifier ON secrets (project_id, owner, identifier COLLATE NOCASE)
        WHERE removed_at IS NULL;

    CREATE TABLE deliveries (
        session_id TEXT NOT NULL REFERENCES sessions (id), secret_id TEXT NOT NULL REFERENCES secrets (id),
        version INTEGER NOT NULL, at TEXT NOT NULL, PRIMARY KEY (session_id, secret_id, version)
    ) WITHOUT ROWID;
    CREATE INDEX deliveries_secret ON deliveries (secret_id, version);

    CREATE TABLE secret_requests (
        id TEXT PRIMARY KEY, project_id TEXT NOT NULL REFERENCES projects (id),
        session_id TEXT NOT NULL REFERENCES sessions (id), identifier TEXT NOT NULL, exposure TEXT NOT NULL,
        reason TEXT NOT NULL, state TEXT NOT NULL, created_at TEXT NOT NULL, decided_by TEXT, decided_at TEXT
    );
    CREATE UNIQUE INDEX secret_requests_open ON secret_requests (session_id, identifier COLLATE NOCASE)
        WHERE state = 'open';

    ALTER TABLE sessions ADD COLUMN attended INTEGER NOT NULL DEFAULT 0;
    """,
)
