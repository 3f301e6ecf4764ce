// Converts run records to rows of the table `runs` and back. Internal to coordinator/store.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "coordinator/state/state.h"
#include "coordinator/store/sqlite.h"

namespace longhaul::coordinator {

// Adds a row at the end, or updates the run's row in place.
inline constexpr std::string_view kUpsertRun =
    "INSERT INTO runs(id, name, state, reason, epoch, step, spec_yaml, link_secret, data_files, "
    "data, plan, checkpoints, submitted_unix_ms, started_unix_ms, ended_unix_ms, stop_asked, "
    "attempts, best_step, last_error, owner, resize_asked, replicas_wanted, "
    "samples) VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT(id) DO UPDATE SET "
    "name=excluded.name, state=excluded.state, reason=excluded.reason, epoch=excluded.epoch, "
    "step=excluded.step, spec_yaml=excluded.spec_yaml, link_secret=excluded.link_secret, "
    "data_files=excluded.data_files, data=excluded.data, plan=excluded.plan, "
    "checkpoints=excluded.checkpoints, submitted_unix_ms=excluded.submitted_unix_ms, "
    "started_unix_ms=excluded.started_unix_ms, ended_unix_ms=excluded.ended_unix_ms, "
    "stop_asked=excluded.stop_asked, attempts=excluded.attempts, best_step=excluded.best_step, "
    "last_error=excluded.last_error, owner=excluded.owner, resize_asked=excluded.resize_asked, "
    "replicas_wanted=excluded.replicas_wanted, samples=excluded.samples";

inline constexpr std::string_view kSelectRuns =
    "SELECT id, state, reason, epoch, step, spec_yaml, link_secret, data_files, data, plan, "
    "checkpoints, submitted_unix_ms, started_unix_ms, ended_unix_ms, stop_asked, attempts, "
    "best_step, last_error, owner, resize_asked, replicas_wanted, samples FROM runs ORDER BY rowid";

// Updates the columns of a run that change often.
inline constexpr std::string_view kUpdateRun =
    "UPDATE runs SET state=?2, reason=?3, epoch=?4, step=?5, started_unix_ms=?6, "
    "ended_unix_ms=?7, stop_asked=?8, attempts=?9, best_step=?10, last_error=?11, "
    "resize_asked=?12, replicas_wanted=?13 WHERE id=?1";

// Binds the parameters of kUpsertRun.
void BindRun(const RunRecord& record, sqlite::Statement* upsert);
// Binds the parameters of kUpdateRun.
void BindSmallColumns(const RunRecord& record, sqlite::Statement* update);
// Returns a hash of all columns that kUpdateRun leaves out.
std::string LargeColumnsSha256(const RunRecord& record);
// Reads a row of kSelectRuns. kDataLoss names the unreadable column.
StatusOr<RunRecord> ReadRun(const sqlite::Statement& row);

// The same in two steps, because to parse a run file takes longer than all else, and a coordinator
// may have thousands of runs when it starts. Rows are read one after the other. Then run files are
// parsed on some threads.
struct RunRow {
  RunId id;
  StatusOr<RunRecord> record;  // without its spec until ParseRunFiles
  std::string run_file;
};
RunRow ReadRunRow(const sqlite::Statement& row);
void ParseRunFiles(std::vector<RunRow>* rows);

}  // namespace longhaul::coordinator
