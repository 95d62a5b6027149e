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
    """
    CREATE TABLE catalogues (
        id TEXT PRIMARY KEY, project_id TEXT NOT NULL REFERENCES projects (id), connector TEXT NOT NULL,
        definition TEXT NOT NULL, document TEXT NOT NULL, state TEXT NOT NULL, actions INTEGER NOT NULL,
        body BLOB NOT NULL, created_by TEXT NOT NULL, created_at TEXT NOT NULL, decided_by TEXT, decided_at TEXT
    );
    CREATE UNIQUE INDEX catalogues_one ON catalogues (project_id, connector, definition, state)
        WHERE state IN ('accepted', 'pending');

    CREATE TABLE connections (
        id TEXT PRIMARY KEY, project_id TEXT NOT NULL REFERENCES projects (id), connector TEXT NOT NULL,
        account TEXT NOT NULL, is_default INTEGER NOT NULL, auth TEXT NOT NULL, username TEXT,
        identifier TEXT, details TEXT NOT NULL, state TEXT NOT NULL, version INTEGER NOT NULL, expires_at TEXT,
        created_by TEXT NOT NULL, created_at TEXT NOT NULL, updated_at TEXT NOT NULL, used_at TEXT, removed_at TEXT
    );
    CREATE UNIQUE INDEX connections_account ON connections (project_id, connector, account) WHERE removed_at IS NULL;
    CREATE UNIQUE INDEX connections_default ON connections (project_id, connector)
        WHERE removed_at IS NULL AND is_default = 1;

    CREATE TABLE calls (
        id TEXT PRIMARY KEY, project_id TEXT NOT NULL REFERENCES projects (id),
        session_id TEXT REFERENCES sessions (id), key TEXT NOT NULL,
        connector TEXT NOT NULL, action TEXT NOT NULL, account TEXT, risk TEXT NOT NULL,
        state TEXT NOT NULL, verdict TEXT NOT NULL, rule TEXT NOT NULL, code TEXT, message TEXT, reason TEXT NOT NULL,
        arguments TEXT NOT NULL, request TEXT, digest TEXT, status INTEGER, bytes INTEGER, duration_ms REAL,
        output TEXT, created_by TEXT NOT NULL, created_at TEXT NOT NULL, expires_at TEXT, decided_by TEXT,
        decided_at TEXT, note TEXT, started_at TEXT, ended_at TEXT,
        asked_at TEXT, left_at TEXT, collected_at TEXT, told_at TEXT, reply TEXT
    );
    CREATE UNIQUE INDEX calls_key ON calls (session_id, key);
    CREATE UNIQUE INDEX calls_pending ON calls (session_id, digest) WHERE state = 'pending';
    CREATE INDEX calls_open ON calls (state, created_at) WHERE state IN ('pending', 'approved', 'executing');
    CREATE INDEX calls_untold ON calls (state, session_id) WHERE collected_at IS NULL AND told_at IS NULL;
    CREATE INDEX calls_action ON calls (project_id, connector, action, created_at);
    CREATE INDEX calls_session ON calls (session_id, created_at);

    CREATE TABLE call_rules (
        id TEXT PRIMARY KEY, project_id TEXT NOT NULL REFERENCES projects (id),
        session_id TEXT REFERENCES sessions (id),
        connector TEXT NOT NULL, action TEXT NOT NULL, arguments TEXT NOT NULL, most INTEGER NOT NULL,
        used INTEGER NOT NULL DEFAULT 0, from_call TEXT NOT NULL REFERENCES calls (id), created_by TEXT NOT NULL,
        created_at TEXT NOT NULL, expires_at TEXT NOT NULL, revoked_by TEXT, revoked_at TEXT
    );
    CREATE INDEX call_rules_action ON call_rules (project_id, connector, action);

    CREATE TABLE egress (
        id TEXT PRIMARY KEY, session_id TEXT NOT NULL REFERENCES sessions (id), at TEXT NOT NULL, host TEXT NOT NULL,
        port INTEGER NOT NULL, method TEXT NOT NULL, outcome TEXT NOT NULL, code TEXT, rule TEXT, address TEXT,
        bytes_out INTEGER NOT NULL, bytes_in INTEGER NOT NULL, ended_at TEXT
    );
    CREATE INDEX egress_session ON egress (session_id, at);
    """,
    """
    CREATE TABLE call_keys (
        session_id TEXT NOT NULL REFERENCES sessions (id), key TEXT NOT NULL,
        call_id TEXT NOT NULL REFERENCES calls (id), PRIMARY KEY (session_id, key)
    ) WITHOUT ROWID;
    """,
)
