#include "coordinator/store/store.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>
#include <variant>

#include "base/file.h"
#include "base/log.h"
#include "base/overloaded.h"
#include "base/watchdog.h"
#include "coordinator/state/books/step_book.h"
#include "coordinator/store/requests.h"
#include "coordinator/store/rows.h"
#include "coordinator/store/run_rows.h"
#include "coordinator/store/schema.h"
#include "coordinator/store/sqlite.h"

namespace longhaul::coordinator {
namespace {

// Superseded rows are deleted so many at a time.
constexpr uint64_t kPruneEvery = 1'000;

// Keeps the newest rows of each run in a table.
class Pruner {
 public:
  Status Prepare(sqlite::Database& database, std::string_view table, uint64_t keep) {
    keep_ = keep;
    LH_ASSIGN_OR_RETURN(
        delete_, database.Prepare(fmt::format(
                     "DELETE FROM {0} WHERE run_id=?1 AND sequence<=(SELECT sequence FROM {0} "
                     "WHERE run_id=?1 ORDER BY sequence DESC LIMIT 1 OFFSET ?2)",
                     table)));
    return absl::OkStatus();
  }
  // After a row was added.
  Status Added(const std::string& run) {
    // The first one after a start prunes too: nobody counted before it.
    const auto [rows, first] = since_.try_emplace(run, 0);
    if (!first && ++rows->second < kPruneEvery) return absl::OkStatus();
    rows->second = 0;
    return delete_.Args(run, keep_).Run();
  }

 private:
  sqlite::Statement delete_;
  uint64_t keep_ = 0;
  std::map<std::string, uint64_t> since_;
};

bool MustSurvivePowerLoss(const Write& write) {
  return std::holds_alternative<write::Run>(write) ||
         std::holds_alternative<write::RemoveRun>(write) ||
         std::holds_alternative<write::Answered>(write) ||
         std::holds_alternative<write::LogEvent>(write);
}

}  // namespace

struct Store::Impl {
  std::string path;
  std::mutex mutex;  // guards the connection that writes, and its statements
  sqlite::Database database;
  Journal journal;
  mutable std::mutex read_mutex;  // guards the next member
  mutable sqlite::Database reader;
  sqlite::Statement insert_event, upsert_step, insert_log;
  RunRows runs;
  Pruner prune_events, prune_logs;
  RequestRows requests;
  bool full_sync = true;

  Status Prepare();
  Status SetFullSync(bool full);
  Status WriteOne(const Write& write);
  Status WriteLog(const write::WorkerLog& log);
  Status WriteEvent(const v1::Event& event);
  Status RemoveRun(const RunId& run);
  StatusOr<std::vector<v1::StepRecord>> StepsSinceCheckpoints(const RunRecord& record) const;
  // `order`: ASC or DESC.
  StatusOr<std::vector<v1::Event>> ReadEvents(std::string_view run, uint64_t after, size_t limit,
                                              std::string_view order) const;
};

Status Store::Impl::Prepare() {
  LH_RETURN_IF_ERROR(database.Execute("PRAGMA synchronous=FULL"));
  LH_RETURN_IF_ERROR(runs.Prepare(database));
  LH_ASSIGN_OR_RETURN(insert_event,
                      database.Prepare("INSERT INTO events(sequence, unix_ms, run_id, epoch, kind, "
                                       "text) VALUES(?,?,?,?,?,?)"));
  LH_ASSIGN_OR_RETURN(
      upsert_step,
      database.Prepare("INSERT OR REPLACE INTO steps(run_id, step, record) VALUES(?,?,?)"));
  LH_ASSIGN_OR_RETURN(insert_log,
                      database.Prepare("INSERT INTO worker_logs(run_id, worker_name, unix_ms, "
                                       "level, text) VALUES(?,?,?,?,?)"));
  LH_RETURN_IF_ERROR(requests.Prepare(database));
  LH_RETURN_IF_ERROR(prune_events.Prepare(database, "events", kKeptEvents));
  return prune_logs.Prepare(database, "worker_logs", kKeptLogLines);
}

// Not within a transaction.
Status Store::Impl::SetFullSync(bool full) {
  if (full == full_sync) return absl::OkStatus();
  LH_RETURN_IF_ERROR(
      database.Execute(full ? "PRAGMA synchronous=FULL" : "PRAGMA synchronous=NORMAL"));
  full_sync = full;
  return absl::OkStatus();
}

Status Store::Impl::WriteLog(const write::WorkerLog& log) {
  LH_RETURN_IF_ERROR(insert_log
                         .Args(log.run.value(), log.worker_name, log.line.unix_ms(),
                               log.line.level(), log.line.text())
                         .Run());
  return prune_logs.Added(log.run.value());
}

Status Store::Impl::WriteEvent(const v1::Event& event) {
  LH_RETURN_IF_ERROR(insert_event
                         .Args(event.sequence(), event.unix_ms(), event.run_id(), event.epoch(),
                               event.kind(), event.text())
                         .Run());
  return prune_events.Added(event.run_id());
}

Status Store::Impl::RemoveRun(const RunId& run) {
  runs.Forget(run);
  for (const char* sql :
       {"DELETE FROM runs WHERE id=?1", "DELETE FROM steps WHERE run_id=?1",
        "DELETE FROM events WHERE run_id=?1", "DELETE FROM worker_logs WHERE run_id=?1"}) {
    LH_ASSIGN_OR_RETURN(sqlite::Statement statement, database.Prepare(sql));
    LH_RETURN_IF_ERROR(statement.Args(run.value()).Run());
  }
  return absl::OkStatus();
}

Status Store::Impl::WriteOne(const Write& write) {
  return std::visit(
      Overloaded{
          [&](const write::Run& run) { return runs.Write(run.record); },
          [&](const write::LogEvent& log) { return WriteEvent(log.event); },
          [&](const write::StepDone& done) {
            const std::string record = done.step.SerializeAsString();
            return upsert_step.Args(done.run.value(), done.step.step(), sqlite::Blob{record}).Run();
          },
          [&](const write::WorkerLog& log) { return WriteLog(log); },
          [&](const write::RemoveRun& removed) { return RemoveRun(removed.run); },
          [&](const auto& request) { return requests.Write(request); },
      },
      write);
}

// `rows`: a statement whose first column is a record.
StatusOr<std::vector<v1::StepRecord>> ReadSteps(const RunId& run, sqlite::Statement& rows) {
  std::vector<v1::StepRecord> steps;
  while (true) {
    LH_ASSIGN_OR_RETURN(const bool row, rows.Next());
    if (!row) return steps;
    const std::string_view bytes = rows.Bytes(0);
    if (!steps.emplace_back().ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
      return DataLoss("state store: a step record of run {} cannot be read", run.value());
    }
  }
}

// Steps that a run may be compared with when it goes back to a checkpoint.
StatusOr<std::vector<v1::StepRecord>> Store::Impl::StepsSinceCheckpoints(
    const RunRecord& record) const {
  LH_ASSIGN_OR_RETURN(sqlite::Statement rows,
                      reader.Prepare("SELECT record FROM steps WHERE run_id=?1 AND step>=?2 "
                                     "ORDER BY step DESC LIMIT ?3"));
  const auto& checkpoints = record.checkpoints;
  rows.Args(record.id.value(), checkpoints.empty() ? 0 : checkpoints.front().step(), kKeptSteps);
  LH_ASSIGN_OR_RETURN(std::vector<v1::StepRecord> steps, ReadSteps(record.id, rows));
  std::reverse(steps.begin(), steps.end());
  return steps;
}

StatusOr<std::unique_ptr<Store>> Store::Open(const std::string& state_dir) {
  const std::string path = state_dir + "/store.db";
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  LH_ASSIGN_OR_RETURN(impl->database, OpenOrCreateStore(path));
  Status status = impl->Prepare();
  if (status.ok()) status = impl->journal.Open(impl->database);
  if (absl::IsInternal(status)) {
    return DamagedStore(path, Message(status));  // a table or a column is not there
  }
  LH_RETURN_IF_ERROR(status);
  // It has it already, unless a person's tools copied it without. Last, because it writes to the
  // file, and preparing may yet find it damaged.
  LH_RETURN_IF_ERROR(impl->database.Execute("PRAGMA journal_mode=WAL"));
  LH_ASSIGN_OR_RETURN(impl->reader, sqlite::Database::Open(path, SQLITE_OPEN_READONLY));
  LH_RETURN_IF_ERROR(impl->reader.Execute("PRAGMA busy_timeout=5000"));
  return std::unique_ptr<Store>(new Store(std::move(impl)));
}

Store::Store(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Store::~Store() = default;

Status Store::Apply(const std::vector<Write>& writes, Written* written) {
  if (writes.empty()) return absl::OkStatus();
  // Whoever holds it may be waiting for the other coordinator.
  const std::unique_lock lock = AwaitOthers([this] { return std::unique_lock(impl_->mutex); });
  LH_RETURN_IF_ERROR(
      impl_->SetFullSync(impl_->journal.needs_sync() ||
                         std::any_of(writes.begin(), writes.end(), MustSurvivePowerLoss)));
  const auto write_all = [&]() -> Status {
    for (const Write& write : writes) LH_RETURN_IF_ERROR(impl_->WriteOne(write));
    return absl::OkStatus();
  };
  const Status status = impl_->journal.Write(impl_->database, write_all, written);
  if (!status.ok()) impl_->runs.Distrust();
  return status;
}

Status Store::BeginTerm(const TermBegun& begun, Written* written) {
  const std::lock_guard lock(impl_->mutex);
  LH_RETURN_IF_ERROR(impl_->SetFullSync(true));
  impl_->runs.Distrust();  // the tail may have rows of runs
  return impl_->journal.BeginTerm(impl_->database, begun, written);
}

Status Store::Sync() {
  // What is committed is in the log, or was synced with the file before the log began anew.
  const std::string log = impl_->path + "-wal";
  const Status synced = SyncPath(log);
  return absl::IsNotFound(synced) ? absl::OkStatus() : synced;
}

Journal& Store::journal() {
  return impl_->journal;
}

StatusOr<uint64_t> Store::TrimSteps(const RunId& run, uint64_t keep, bool dry_run) {
  // From this step on all are kept. NULL, of fewer rows, is less than nothing.
  constexpr std::string_view kOlder =
      "FROM steps WHERE run_id=?1 AND step<(SELECT step FROM steps WHERE run_id=?1 ORDER BY step "
      "DESC LIMIT 1 OFFSET ?2)";
  const std::lock_guard lock(impl_->mutex);
  LH_ASSIGN_OR_RETURN(sqlite::Statement count,
                      impl_->database.Prepare(fmt::format("SELECT count(*) {}", kOlder)));
  const uint64_t last_kept = std::max<uint64_t>(keep, 1) - 1;
  LH_RETURN_IF_ERROR(count.Args(run.value(), last_kept).Next().status());
  const auto rows = static_cast<uint64_t>(count.Int(0));
  if (dry_run || rows == 0) return rows;
  LH_ASSIGN_OR_RETURN(sqlite::Statement trim,
                      impl_->database.Prepare(fmt::format("DELETE {}", kOlder)));
  LH_RETURN_IF_ERROR(impl_->journal.Write(impl_->database,
                                          [&] { return trim.Args(run.value(), last_kept).Run(); }));
  return rows;
}

StatusOr<StoredRuns> Store::LoadRuns() const {
  const std::lock_guard lock(impl_->read_mutex);
  LH_ASSIGN_OR_RETURN(sqlite::Statement rows, impl_->reader.Prepare(kSelectRuns));
  StoredRuns stored;
  LH_ASSIGN_OR_RETURN(stored.answered, ReadAnswered(impl_->reader));
  std::vector<RunRow> all;
  while (true) {
    LH_ASSIGN_OR_RETURN(const bool row, rows.Next());
    if (!row) break;
    all.push_back(ReadRunRow(rows));
  }
  ParseRunFiles(&all);
  for (RunRow& row : all) {
    StatusOr<RunRecord>& record = row.record;
    if (record.ok()) {
      if (!HasEnded(record->state)) {
        StatusOr<std::vector<v1::StepRecord>> steps = impl_->StepsSinceCheckpoints(*record);
        if (absl::IsDataLoss(steps.status())) {
          LogWarning("{}; should steps be repeated, they are not compared",
                     Message(steps.status()));
          steps = std::vector<v1::StepRecord>();
        }
        LH_ASSIGN_OR_RETURN(stored.steps[record->id], std::move(steps));
      }
      stored.runs.push_back(*std::move(record));
    } else {
      stored.unreadable.push_back({std::move(row.id), std::string(Message(record.status()))});
    }
  }
  return stored;
}

StatusOr<uint64_t> Store::NextEventSequence() const {
  const std::lock_guard lock(impl_->read_mutex);
  LH_ASSIGN_OR_RETURN(const int64_t last,
                      impl_->reader.QueryInt("SELECT coalesce(max(sequence), 0) FROM events"));
  return static_cast<uint64_t>(last) + 1;
}

StatusOr<std::vector<v1::Event>> Store::Impl::ReadEvents(std::string_view run, uint64_t after,
                                                         size_t limit,
                                                         std::string_view order) const {
  const std::lock_guard lock(read_mutex);
  const std::string sql = fmt::format(
      "SELECT sequence, unix_ms, run_id, epoch, kind, text FROM events WHERE "
      "sequence>?1 {} ORDER BY sequence {} LIMIT ?2",
      run.empty() ? "" : "AND run_id=?3", order);
  LH_ASSIGN_OR_RETURN(sqlite::Statement rows, reader.Prepare(sql));
  rows.Args(after, limit);
  if (!run.empty()) rows.Bind(3, run);
  std::vector<v1::Event> events;
  while (true) {
    LH_ASSIGN_OR_RETURN(const bool row, rows.Next());
    if (!row) return events;
    v1::Event& event = events.emplace_back();
    event.set_sequence(static_cast<uint64_t>(rows.Int(0)));
    event.set_unix_ms(rows.Int(1));
    event.set_run_id(std::string(rows.Bytes(2)));
    event.set_epoch(static_cast<uint64_t>(rows.Int(3)));
    event.set_kind(std::string(rows.Bytes(4)));
    event.set_text(std::string(rows.Bytes(5)));
  }
}

StatusOr<std::vector<v1::Event>> Store::Events(std::string_view run, uint64_t after,
                                               size_t limit) const {
  return impl_->ReadEvents(run, after, limit, "ASC");
}

StatusOr<std::vector<v1::Event>> Store::NewestEvents(std::string_view run, uint64_t after,
                                                     size_t limit) const {
  LH_ASSIGN_OR_RETURN(std::vector<v1::Event> events, impl_->ReadEvents(run, after, limit, "DESC"));
  std::reverse(events.begin(), events.end());
  return events;
}

StatusOr<std::vector<v1::LogEntry>> Store::Logs(const RunId& run, uint64_t after,
                                                size_t limit) const {
  const std::lock_guard lock(impl_->read_mutex);
  LH_ASSIGN_OR_RETURN(
      sqlite::Statement rows,
      impl_->reader.Prepare("SELECT sequence, worker_name, unix_ms, level, text FROM worker_logs "
                            "WHERE run_id=?1 AND sequence>?2 ORDER BY sequence LIMIT ?3"));
  rows.Args(run.value(), after, limit);
  std::vector<v1::LogEntry> entries;
  while (true) {
    LH_ASSIGN_OR_RETURN(const bool row, rows.Next());
    if (!row) return entries;
    v1::LogEntry& entry = entries.emplace_back();
    entry.set_sequence(static_cast<uint64_t>(rows.Int(0)));
    entry.set_worker_name(std::string(rows.Bytes(1)));
    entry.mutable_line()->set_unix_ms(rows.Int(2));
    entry.mutable_line()->set_level(std::string(rows.Bytes(3)));
    entry.mutable_line()->set_text(std::string(rows.Bytes(4)));
  }
}

StatusOr<std::vector<v1::StepRecord>> Store::Steps(const RunId& run, uint64_t step,
                                                   size_t limit) const {
  const std::lock_guard lock(impl_->read_mutex);
  LH_ASSIGN_OR_RETURN(sqlite::Statement rows,
                      impl_->reader.Prepare("SELECT record FROM steps WHERE run_id=?1 AND "
                                            "step>=?2 ORDER BY step LIMIT ?3"));
  rows.Args(run.value(), step, limit);
  return ReadSteps(run, rows);
}

}  // namespace longhaul::coordinator
