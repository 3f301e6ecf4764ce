// A run's row with anything in its columns: refused, or written and read again it is the same.
// The first two bytes choose the columns that are replaced; the rest, in pieces that end with "%%",
// are their values.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/fuzz/target.h"
#include "coordinator/store/fuzz/short_run.h"
#include "coordinator/store/rows.h"
#include "run/plan/chain.h"
#include "run/plan/proto/plan_proto.h"

namespace longhaul::coordinator {
namespace {

constexpr int kColumns = 23;  // of kUpsertRun
constexpr int kSpecColumn = 7;
constexpr std::string_view kSeparator = "%%";

RunRecord WholeRecord() {
  RunRecord record;
  record.id = RunId("tiny-abc234");
  record.spec.name = "tiny";
  record.spec.data.text = {"a.txt"};
  record.spec.train.steps = 10;
  record.state = RunState::kRunning;
  record.epoch = Epoch(2);
  record.link_secret = std::string(32, 's');
  record.data_files.resize(1);
  record.data_files[0].set_sha256(std::string(64, 'a'));
  record.data.emplace().tokens = 100;
  Assignment& assignment = record.plan.emplace().assignment;
  assignment.epoch = Epoch(2);
  for (uint32_t i = 0; i < 2; ++i) {
    Cell& cell = assignment.cells.emplace_back();
    cell.id = {.replica = 0, .stage = i};
    cell.worker = WorkerId(i == 0 ? "w0" : "w1");
    cell.incarnation = Incarnation("1");
    cell.layers = {.first = i, .count = 1};
    cell.roles = {.embedding = i == 0, .head = i == 1};
  }
  assignment.edges = chain::MakeEdges(1, 2);
  record.checkpoints.resize(1);
  record.checkpoints[0].set_step(5);
  record.checkpoints[0].add_files();
  *record.checkpoints[0].add_cells() = ToProto(assignment.cells[0]);
  return record;
}

std::vector<std::string_view> Pieces(std::string_view input) {
  std::vector<std::string_view> pieces;
  while (true) {
    const size_t end = input.find(kSeparator);
    pieces.push_back(input.substr(0, end));
    if (end == std::string_view::npos) return pieces;
    input.remove_prefix(end + kSeparator.size());
  }
}

// The store's own statements, over a table in memory.
class Table {
 public:
  Table() : database_(Must(sqlite::Database::Open(":memory:", kFlags))) {
    if (!database_
             .Execute("CREATE TABLE runs(id PRIMARY KEY, name, state, reason, epoch, step, "
                      "spec_yaml, link_secret, data_files, data, plan, checkpoints, "
                      "submitted_unix_ms, started_unix_ms, ended_unix_ms, stop_asked, attempts, "
                      "best_step, last_error, owner, resize_asked, replicas_wanted, "
                      "samples)")
             .ok()) {
      std::abort();
    }
    upsert_ = Must(database_.Prepare(kUpsertRun));
    select_ = Must(database_.Prepare(kSelectRuns));
    clear_ = Must(database_.Prepare("DELETE FROM runs"));
  }
  StatusOr<RunRecord> WriteAndRead(const RunRecord& record) {
    BindRun(record, &upsert_);
    return Read();
  }
  // The record with other columns. `replaced`: a bit for every column; their values in order, as
  // long as there are some.
  StatusOr<RunRecord> WriteAndRead(const RunRecord& record, uint32_t replaced,
                                   const std::vector<std::string_view>& values) {
    BindRun(record, &upsert_);
    upsert_.Bind(kSpecColumn, kShortRun);
    size_t next = 0;
    for (int column = 0; column < kColumns && next < values.size(); ++column) {
      if ((replaced >> column & 1) != 0) upsert_.Bind(column + 1, sqlite::Blob{values[next++]});
    }
    return Read();
  }

 private:
  StatusOr<RunRecord> Read() {
    if (!clear_.Run().ok() || !upsert_.Run().ok()) std::abort();
    if (!Must(select_.Next())) std::abort();
    StatusOr<RunRecord> read = ReadRun(select_);
    if (Must(select_.Next())) std::abort();
    return read;
  }

  static constexpr int kFlags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
  template <class T>
  static T Must(StatusOr<T> value) {
    if (!value.ok()) std::abort();
    return *std::move(value);
  }
  sqlite::Database database_;
  sqlite::Statement upsert_, select_, clear_;
};

}  // namespace
}  // namespace longhaul::coordinator

LH_FUZZ_TARGET(run_row) {
  using namespace longhaul::coordinator;
  static Table table;
  static const RunRecord whole = WholeRecord();
  if (size < 2) return false;
  const uint32_t replaced = data[0] | static_cast<uint32_t>(data[1]) << 8;
  const std::string_view rest(reinterpret_cast<const char*>(data + 2), size - 2);
  longhaul::StatusOr<RunRecord> record = table.WriteAndRead(whole, replaced, Pieces(rest));
  if (!record.ok()) return false;
  const longhaul::StatusOr<RunRecord> again = table.WriteAndRead(*record);
  if (!again.ok() || again->id != record->id || again->state != record->state ||
      !(again->spec == record->spec) || again->checkpoints.size() != record->checkpoints.size() ||
      again->plan.has_value() != record->plan.has_value()) {
    std::abort();
  }
  State state({}, {.runs = {*std::move(record)}, .unreadable = {}}, 1, longhaul::MonoTime());
  const TickResult result = state.Tick({}, longhaul::MonoTime() + absl::Hours(1), 1);
  for (const longhaul::v1::RunStatus& run : state.views().Runs())
    (void)state.views().RunOf(run.run_id()).ok();
  if (result.writes.size() > 1'000) std::abort();
  return true;
}
