#include "coordinator/store/rows.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/hash.h"
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
std::optional<std::string> BytesOf(const std::optional<T>& value) {
  return value ? std::optional(ToProto(*value).SerializeAsString()) : std::nullopt;
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
  using sqlite::Blob;
  const std::string data_files = Join(record.data_files), checkpoints = Join(record.checkpoints),
                    samples = Join(record.samples);
  const std::optional<std::string> data = BytesOf(record.data), plan = BytesOf(record.plan);
  const auto blob = [](const std::optional<std::string>& bytes) {
    return bytes ? std::optional(Blob{*bytes}) : std::nullopt;
  };
  upsert->Args(record.id.value(), record.spec.name, ToString(record.state), record.reason,
               record.epoch.value(), record.step, ToYaml(record.spec), Blob{record.link_secret},
               Blob{data_files}, blob(data), blob(plan), Blob{checkpoints},
               record.submitted_unix_ms, record.started_unix_ms, record.ended_unix_ms,
               record.stop_asked, record.attempts.in_a_row, record.attempts.best_step,
               record.attempts.error, record.owner, record.resize_asked, record.replicas_wanted,
               Blob{samples});
}

void BindSmallColumns(const RunRecord& record, sqlite::Statement* update) {
  update->Args(record.id.value(), ToString(record.state), record.reason, record.epoch.value(),
               record.step, record.started_unix_ms, record.ended_unix_ms, record.stop_asked,
               record.attempts.in_a_row, record.attempts.best_step, record.attempts.error,
               record.resize_asked, record.replicas_wanted);
}

std::string LargeColumnsSha256(const RunRecord& record) {
  std::string all;
  const auto add = [&](std::string_view column) {
    all += fmt::format("{} ", column.size());
    all += column;
  };
  const auto add_optional = [&](const std::optional<std::string>& column) {
    all += column ? 'y' : 'n';
    add(column.value_or(""));
  };
  add(record.spec.name);
  add(ToYaml(record.spec));
  add(record.link_secret);
  add(Join(record.data_files));
  add_optional(BytesOf(record.data));
  add_optional(BytesOf(record.plan));
  add(Join(record.checkpoints));
  add(Join(record.samples));
  add(record.owner);
  add(fmt::format("{}", record.submitted_unix_ms));
  return Sha256Hex(all);
}

namespace {

Status Unreadable(std::string_view what) {
  return DataLoss("its {} cannot be read; put a copy of the store back, or submit the run anew",
                  what);
}

// All but the spec.
StatusOr<RunRecord> ReadColumns(const sqlite::Statement& row) {
  RunRecord record;
  record.id = RunId(std::string(row.Bytes(0)));
  const std::optional<RunState> state = StateFromText(row.Bytes(1));
  if (!state.has_value()) return Unreadable(fmt::format("state '{}'", row.Bytes(1)));
  record.state = *state;
  record.reason = row.Bytes(2);
  record.epoch = Epoch(static_cast<uint64_t>(row.Int(3)));
  record.step = static_cast<uint64_t>(row.Int(4));
  record.submitted_bytes = row.Bytes(5).size() + row.Bytes(7).size();
  record.link_secret = row.Bytes(6);
  if (!Split(row.Bytes(7), &record.data_files)) return Unreadable("list of data files");
  if (!ReadOptional<v1::DataSet>(row, 8, &record.data)) return Unreadable("data set");
  if (!ReadOptional<v1::Plan>(row, 9, &record.plan)) return Unreadable("plan");
  if (!Split(row.Bytes(10), &record.checkpoints) || !AreCheckpoints(record.checkpoints)) {
    return Unreadable("list of checkpoints");
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
  if (!Split(row.Bytes(21), &record.samples) || record.samples.size() > kKeptSampleRounds) {
    return Unreadable("list of samples");
  }
  return record;
}

void ParseRunFile(RunRow* row) {
  if (!row->record.ok()) return;
  // A run with a codec that this version does not know cannot be read.
  StatusOr<RunSpec> spec = ParseRunSpec(row->run_file, "stored", {});
  if (!spec.ok()) {
    row->record = Unreadable(fmt::format("run file ({})", Message(spec.status())));
    return;
  }
  row->record->spec = *std::move(spec);
  if (const auto what = WhatCannotBe(*row->record)) row->record = Unreadable(*what);
}

}  // namespace

RunRow ReadRunRow(const sqlite::Statement& row) {
  return {RunId(std::string(row.Bytes(0))), ReadColumns(row), std::string(row.Bytes(5))};
}

void ParseRunFiles(std::vector<RunRow>* rows) {
  constexpr size_t kRowsOfAThread = 100, kMostThreads = 4;
  std::atomic<size_t> next = 0;
  const auto parse = [&] {
    for (size_t i = next++; i < rows->size(); i = next++) ParseRunFile(&(*rows)[i]);
  };
  const size_t cores = std::max(1u, std::thread::hardware_concurrency());
  const size_t threads = std::min({kMostThreads, cores, 1 + rows->size() / kRowsOfAThread});
  std::vector<std::jthread> others;
  for (size_t i = 1; i < threads; ++i) others.emplace_back(parse);
  parse();
}

StatusOr<RunRecord> ReadRun(const sqlite::Statement& row) {
  RunRow read = ReadRunRow(row);
  ParseRunFile(&read);
  return std::move(read.record);
}

}  // namespace longhaul::coordinator
