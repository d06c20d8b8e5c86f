-- A store of schema 1, as the release that wrote that schema wrote it (sqlite3.Connection.iterdump).
BEGIN TRANSACTION;
CREATE TABLE cases (digest TEXT PRIMARY KEY, data BLOB NOT NULL);
INSERT INTO "cases" VALUES('a509f01c064bb27fcb40d4fb9e758ed225562d9cfbf0d6e5b3d6aed1c9287d67',X'789C4B54484E2C4E4DA43B0900F3A32A45');
INSERT INTO "cases" VALUES('247e91515ff57955f72440deb1b1de81fc3e5b1e101e34627ee20b6865388d59',X'789C4BCCCB2FC9482D52484E2C4E05001F0504AE');
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
INSERT INTO "meta" VALUES('schema_version','1');
CREATE TABLE runs (
    id INTEGER PRIMARY KEY AUTOINCREMENT, state TEXT NOT NULL, started TEXT NOT NULL, finished TEXT,
    command TEXT NOT NULL, options TEXT NOT NULL, versions TEXT NOT NULL, device TEXT NOT NULL, seed INTEGER,
    pid INTEGER, host TEXT
);
INSERT INTO "runs" VALUES(1,'finished','2026-11-21T19:03:21+00:00','2026-11-21T19:03:21+00:00','torchstone run -b linalg -b eager --op add','{"backends": ["linalg", "eager"], "sources": ["opinfo"], "ops": ["add"], "dtypes": ["float32"], "variants": ["default"], "limit": null}','{"torch": "2.13.0"}','cpu',7,4242,'builder');
INSERT INTO "runs" VALUES(2,'interrupted','2026-11-21T19:03:21+00:00','2026-11-21T19:03:21+00:00','torchstone run -b linalg --op add','{"backends": ["linalg"], "sources": ["opinfo"], "ops": ["add"], "dtypes": ["float32"], "limit": null}','{"torch": "2.13.0"}','cpu',NULL,4242,'builder');
CREATE TABLE verdicts (
    run INTEGER NOT NULL REFERENCES runs(id), case_id TEXT NOT NULL, backend TEXT NOT NULL, source TEXT NOT NULL,
    op TEXT NOT NULL, dtype TEXT NOT NULL, variant TEXT NOT NULL, stage TEXT NOT NULL, outcome TEXT NOT NULL,
    kind TEXT NOT NULL, message TEXT NOT NULL, evidence TEXT NOT NULL, seconds REAL NOT NULL, digest TEXT,
    PRIMARY KEY (run, backend, case_id)
) WITHOUT ROWID;
INSERT INTO "verdicts" VALUES(1,'opinfo:add:float32:0','eager','opinfo','add','float32','default','compare','pass','','','{}',0.0,NULL);
INSERT INTO "verdicts" VALUES(1,'opinfo:add:float32:0','linalg','opinfo','add','float32','default','compare','pass','','','{}',0.25,NULL);
INSERT INTO "verdicts" VALUES(1,'opinfo:add:float32:1','linalg','opinfo','add','float32','default','compare','mismatch','value','got 1.5, eager 2.5
at [0, 1]','{"got": NaN, "eager": 2.5}',0.0,'a509f01c064bb27fcb40d4fb9e758ed225562d9cfbf0d6e5b3d6aed1c9287d67');
INSERT INTO "verdicts" VALUES(2,'opinfo:add:float32:1','linalg','opinfo','add','float32','default','run','crash','','signal SIGSEGV é','{}',0.0,'247e91515ff57955f72440deb1b1de81fc3e5b1e101e34627ee20b6865388d59');
CREATE INDEX verdicts_by_case ON verdicts (case_id);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('runs',2);
COMMIT;
