// Records that a store is filled with, and what is in its folder. Header only.
#pragma once

#include <fmt/core.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "base/file.h"
#include "coordinator/store/store.h"
#include "run/plan/proto/plan_proto.h"

namespace longhaul::coordinator {

inline RunRecord FullRecord(const std::string& id) {
  RunRecord record;
  record.id = RunId(id);
  record.spec.name = "tiny-wan";
  record.spec.model = {.layers = 8, .hidden = 256, .heads = 8, .context = 128};
  record.spec.data.text = {"corpus/*.txt", "more text.txt"};
  record.spec.train.steps = 200;
  record.spec.train.microbatches = 16;
  record.spec.train.optimizer.lr = 3.3e-4;
  record.spec.pipeline.stages = 4;
  record.spec.links.codecs = {"tah:p=0.7", "fixed:bits=6"};
  record.spec.peer_timeout = absl::Seconds(7);
  record.data_files.resize(2);
  record.data_files[0].set_name("a.txt");
  record.data_files[0].set_sha256(std::string(64, 'a'));
  record.data_files[1].set_bytes(1ull << 40);
  record.state = RunState::kFinishing;
  record.reason = "waits; \"quoted\" \xc3\xa9";
  record.epoch = Epoch(3);
  record.link_secret = std::string("\0\x01\xff", 3) + std::string(29, 'x');
  record.data.emplace().tokens = 12345;
  Plan& plan = record.plan.emplace();
  plan.explanation = "because";
  plan.assignment.epoch = Epoch(3);
  Cell& cell = plan.assignment.cells.emplace_back();
  cell.worker_name = "worker1";
  cell.layers.count = 8;
  cell.roles = {.embedding = true, .head = true};
  cell.endpoints = {{.transport = "ucx", .addresses = {"10.77.0.2:41234", "192.0.2.7:1"}}};
  record.checkpoints.resize(2);
  for (v1::CheckpointManifest& manifest : record.checkpoints) {
    manifest.set_step(50);
    manifest.set_microbatches(700);
    manifest.add_files()->set_name("stage-0.params.safetensors");
    *manifest.add_cells() = ToProto(cell);
  }
  record.checkpoints[1].set_step(100);
  record.step = 117;
  record.stop_asked = record.resize_asked = true;
  record.replicas_wanted = 3;
  for (const uint64_t step : {100, 200}) {
    v1::SampleRound& round = record.samples.emplace_back();
    round.set_step(step);
    round.add_samples()->set_text("a text of step");
  }
  record.attempts = {.in_a_row = 2, .best_step = 119, .error = "no room"};
  record.submitted_unix_ms = 1'700'000'000'001;
  record.started_unix_ms = 1'700'000'000'002;
  return record;
}

inline void ExpectEqual(const RunRecord& a, const RunRecord& b) {
  EXPECT_EQ(a.id, b.id);
  EXPECT_EQ(ToYaml(a.spec), ToYaml(b.spec));
  ASSERT_EQ(a.data_files.size(), b.data_files.size());
  for (size_t i = 0; i < a.data_files.size(); ++i) {
    EXPECT_TRUE(
        ::google::protobuf::util::MessageDifferencer::Equals(a.data_files[i], b.data_files[i]));
  }
  EXPECT_EQ(a.state, b.state);
  EXPECT_EQ(a.reason, b.reason);
  EXPECT_EQ(a.epoch, b.epoch);
  EXPECT_EQ(a.link_secret, b.link_secret);
  ASSERT_EQ(a.data.has_value(), b.data.has_value());
  EXPECT_EQ(a.data, b.data);
  ASSERT_EQ(a.plan.has_value(), b.plan.has_value());
  if (a.plan) {
    EXPECT_TRUE(
        ::google::protobuf::util::MessageDifferencer::Equals(ToProto(*a.plan), ToProto(*b.plan)));
  }
  ASSERT_EQ(a.checkpoints.size(), b.checkpoints.size());
  for (size_t i = 0; i < a.checkpoints.size(); ++i) {
    EXPECT_TRUE(
        ::google::protobuf::util::MessageDifferencer::Equals(a.checkpoints[i], b.checkpoints[i]));
  }
  ASSERT_EQ(a.samples.size(), b.samples.size());
  for (size_t i = 0; i < a.samples.size(); ++i) {
    EXPECT_TRUE(::google::protobuf::util::MessageDifferencer::Equals(a.samples[i], b.samples[i]));
  }
  EXPECT_EQ(a.step, b.step);
  EXPECT_EQ(a.stop_asked, b.stop_asked);
  EXPECT_EQ(a.resize_asked, b.resize_asked);
  EXPECT_EQ(a.replicas_wanted, b.replicas_wanted);
  EXPECT_EQ(a.attempts, b.attempts);
  EXPECT_EQ(a.submitted_unix_ms, b.submitted_unix_ms);
  EXPECT_EQ(a.started_unix_ms, b.started_unix_ms);
  EXPECT_EQ(a.ended_unix_ms, b.ended_unix_ms);
}

inline write::LogEvent EventOf(uint64_t sequence, const std::string& run) {
  v1::Event event;
  event.set_sequence(sequence);
  event.set_unix_ms(1000 + static_cast<int64_t>(sequence));
  event.set_run_id(run);
  event.set_epoch(2);
  event.set_kind("state");
  event.set_text(fmt::format("event {}", sequence));
  return {event};
}

inline write::StepDone StepOf(const std::string& run, uint64_t step, double loss) {
  v1::StepRecord record;
  record.set_step(step);
  record.set_loss(loss);
  record.set_link_bytes(1ull << 35);
  return {RunId(run), record};
}

inline write::WorkerLog LogOf(const std::string& run, const std::string& text) {
  v1::LogLine line;
  line.set_unix_ms(77);
  line.set_level("info");
  line.set_text(text);
  return {RunId(run), "worker1", line};
}

inline std::unique_ptr<Store> OpenStore(const std::string& folder) {
  StatusOr<std::unique_ptr<Store>> store = Store::Open(folder);
  EXPECT_TRUE(store.ok()) << store.status();
  return store.ok() ? *std::move(store) : nullptr;
}

// Every file of a folder but SQLite's shared-memory index, which holds no data.
inline std::map<std::string, std::string> Contents(const std::string& folder) {
  std::map<std::string, std::string> contents;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".db") {
      contents[entry.path().filename()] = *ReadFile(entry.path());
    }
  }
  return contents;
}

// Every column of a run, as SQLite writes them down.
inline std::string RowOf(const std::string& folder, const std::string& id) {
  sqlite3* database = nullptr;
  EXPECT_EQ(sqlite3_open((folder + "/store.db").c_str(), &database), SQLITE_OK);
  std::string row;
  const auto append = [](void* text, int columns, char** values, char**) {
    for (int i = 0; i < columns; ++i) {
      *static_cast<std::string*>(text) += std::string(values[i]) + "\n";
    }
    return 0;
  };
  const std::string sql = fmt::format(
      "SELECT quote(name), quote(state), quote(spec_yaml), quote(plan), quote(checkpoints) "
      "FROM runs WHERE id='{}'",
      id);
  EXPECT_EQ(sqlite3_exec(database, sql.c_str(), append, &row, nullptr), SQLITE_OK);
  sqlite3_close(database);
  return row;
}

inline void Sql(const std::string& folder, const std::string& sql) {
  sqlite3* database = nullptr;
  ASSERT_EQ(sqlite3_open((folder + "/store.db").c_str(), &database), SQLITE_OK);
  EXPECT_EQ(sqlite3_exec(database, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK)
      << sqlite3_errmsg(database);
  sqlite3_close(database);
}

}  // namespace longhaul::coordinator
