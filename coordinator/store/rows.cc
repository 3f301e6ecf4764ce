#include "coordinator/store/rows.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/store/messages_column.h"
#include "run/file/run_spec.h"
#include "run/plan/proto/plan_proto.h"

namespace longhaul::coordinator {
namespace {

// A column that may be null: `T` as a message `M`. False where it holds something else.
template <class M, class T>
bool ReadOptional(const sqlite::Statement& row, int column, std::optional<T>* value) {
  if (row.IsNull(column)) return true;
  M message;
  const std::string_view bytes = row.Bytes(column);
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return false;
  *value = FromProto(message);
  return true;
}

template <class T>
void BindOptional(const std::optional<T>& value, int position, sqlite::Statement* statement) {
  if (value.has_value()) {
    statement->BindBlob(position, ToProto(*value).SerializeAsString());
  } else {
    statement->BindNull(position);
  }
}

std::optional<RunState> StateFromText(std::string_view text) {
  for (int i = 0; i <= static_cast<int>(RunState::kRecovering); ++i) {
    const auto state = static_cast<RunState>(i);
    if (ToString(state) == text) return state;
  }
  return std::nullopt;
}

// What cannot be of a run, and what the state machine relies on; nothing: all of it can.
std::optional<std::string_view> WhatCannotBe(const RunRecord& record) {
  const bool has_stages = record.state == RunState::kPreparing ||
                          record.state == RunState::kRunning ||
                          record.state == RunState::kFinishing;
  if (HasEnded(record.state) != (record.ended_unix_ms != 0)) return "time of its end";
  if (record.state == RunState::kFailed && record.reason.empty()) return "reason";
  if (has_stages && record.epoch.value() == 0) return "epoch";
  if (record.step > std::max<uint64_t>(record.spec.train.steps, 1)) return "step";
  return std::nullopt;
}

// Oldest first, each with the cells that wrote it, none of them twice.
bool AreCheckpoints(const std::vector<v1::CheckpointManifest>& checkpoints) {
  uint64_t step = 0;
  for (const v1::CheckpointManifest& manifest : checkpoints) {
    if (manifest.cells().empty() || manifest.step() <= step) return false;
    step = manifest.step();
    std::set<CellId> ids;
    for (const v1::Cell& cell : manifest.cells()) {
      if (!ids.insert(FromProto(cell.id())).second) return false;
    }
  }
  return true;
}

}  // namespace

void BindRun(const RunRecord& record, sqlite::Statement* upsert) {
  upsert->Bind(1, record.id.value())
      .Bind(2, record.spec.name)
      .Bind(3, ToString(record.state))
      .Bind(4, record.reason)
      .Bind(5, record.epoch.value())
      .Bind(6, record.step)
      .Bind(7, ToYaml(record.spec))
      .BindBlob(8, record.link_secret)
      .BindBlob(9, Join(record.data_files));
  BindOptional(record.data, 10, upsert);
  BindOptional(record.plan, 11, upsert);
  upsert->BindBlob(12, Join(record.checkpoints))
      .Bind(13, record.submitted_unix_ms)
      .Bind(14, record.started_unix_ms)
      .Bind(15, record.ended_unix_ms)
      .Bind(16, int64_t{record.stop_asked})
      .Bind(17, int64_t{record.attempts.in_a_row})
      .Bind(18, record.attempts.best_step)
      .Bind(19, record.attempts.error)
      .Bind(20, record.owner)
      .Bind(21, int64_t{record.resize_asked})
      .Bind(22, int64_t{record.replicas_wanted});
}

StatusOr<RunRecord> ReadRun(const sqlite::Statement& row) {
  RunRecord record;
  record.id = RunId(std::string(row.Bytes(0)));
  const auto unreadable = [&](std::string_view what) -> Status {
    return DataLoss("its {} cannot be read; put a copy of the store back, or submit the run anew",
                    what);
  };
  const std::optional<RunState> state = StateFromText(row.Bytes(1));
  if (!state.has_value()) return unreadable(fmt::format("state '{}'", row.Bytes(1)));
  record.state = *state;
  record.reason = row.Bytes(2);
  record.epoch = Epoch(static_cast<uint64_t>(row.Int(3)));
  record.step = static_cast<uint64_t>(row.Int(4));
  StatusOr<RunSpec> spec = ParseRunSpec(row.Bytes(5), "stored", {});
  if (!spec.ok()) return unreadable(fmt::format("run file ({})", Message(spec.status())));
  record.spec = *std::move(spec);
  record.link_secret = row.Bytes(6);
  if (!Split(row.Bytes(7), &record.data_files)) return unreadable("list of data files");
  if (!ReadOptional<v1::DataSet>(row, 8, &record.data)) return unreadable("data set");
  if (!ReadOptional<v1::Plan>(row, 9, &record.plan)) return unreadable("plan");
  if (!Split(row.Bytes(10), &record.checkpoints) || !AreCheckpoints(record.checkpoints)) {
    return unreadable("list of checkpoints");
  }
  record.submitted_unix_ms = row.Int(11);
  record.started_unix_ms = row.Int(12);
  record.ended_unix_ms = row.Int(13);
  record.stop_asked = row.Int(14) != 0;
  record.attempts = {.in_a_row = static_cast<uint32_t>(row.Int(15)),
                     .best_step = static_cast<uint64_t>(row.Int(16)),
                     .error = std::string(row.Bytes(17))};
  record.owner = row.Bytes(18);
  record.resize_asked = row.Int(19) != 0;
  record.replicas_wanted = static_cast<uint32_t>(row.Int(20));
  if (const auto what = WhatCannotBe(record)) return unreadable(*what);
  return record;
}

}  // namespace longhaul::coordinator
