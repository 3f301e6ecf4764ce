// A store's file with damage: refused, or everything in it can be read or is refused, and what was
// refused is as it was. The input is pairs of an offset (3 bytes) and a byte to put there; the
// offset counts from the end of the file with its highest bit set, and 0xffffff cuts the file to
// its first 256 x byte bytes.
#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/fuzz/target.h"
#include "coordinator/store/fuzz/short_run.h"
#include "coordinator/store/sqlite.h"
#include "coordinator/store/store.h"

namespace longhaul::coordinator {
namespace {

// In memory where there is a file system for it: SQLite syncs what it writes.
std::string Folder() {
  std::string base = "/dev/shm";
  if (::access(base.c_str(), W_OK) != 0) base = std::filesystem::temp_directory_path();
  std::string folder = fmt::format("{}/longhaul-store-fuzz-{}", base, ::getpid());
  if (!MakeDirectories(folder).ok()) std::abort();
  static const std::string kept = folder;
  std::atexit([] {
    std::error_code ignored;
    std::filesystem::remove_all(kept, ignored);
  });
  return folder;
}

void RemoveStore(const std::string& folder) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    std::filesystem::remove(entry.path(), ignored);
  }
}

// The file of a store with a run, events, steps and log lines.
std::string WholeFile(const std::string& folder) {
  {
    auto store = Store::Open(folder);
    if (!store.ok()) std::abort();
    std::vector<Write> writes;
    RunRecord record;
    record.id = RunId("tiny-abc234");
    record.spec.name = "tiny";
    record.spec.data.text = {"a.txt"};
    record.state = RunState::kDone;
    record.epoch = Epoch(1);
    record.link_secret = std::string(32, 's');
    record.plan.emplace().assignment.cells.emplace_back().worker_name = "w";
    record.checkpoints.resize(1);
    record.checkpoints[0].set_step(5);
    record.checkpoints[0].add_files();
    record.checkpoints[0].add_cells();
    writes.emplace_back(write::Run{record});
    for (uint64_t i = 1; i <= 3; ++i) {
      v1::StepRecord step;
      step.set_step(i);
      step.set_loss(5.5);
      writes.emplace_back(write::StepDone{record.id, step});
      v1::LogLine line;
      line.set_level("info");
      line.set_text("a line");
      writes.emplace_back(write::WorkerLog{record.id, "w", line});
    }
    for (uint64_t i = 1; i <= 5; ++i) {
      v1::Event event;
      event.set_sequence(i);
      event.set_run_id("tiny-abc234");
      event.set_kind("state");
      event.set_text("queued");
      writes.emplace_back(write::LogEvent{event});
    }
    if (!(*store)->Apply(writes).ok()) std::abort();
  }
  {
    auto database = sqlite::Database::Open(folder + "/store.db", SQLITE_OPEN_READWRITE);
    if (!database.ok() ||
        !database->Execute(fmt::format("UPDATE runs SET spec_yaml='{}'", kShortRun)).ok()) {
      std::abort();
    }
  }
  auto file = ReadFile(folder + "/store.db");
  if (!file.ok()) std::abort();
  RemoveStore(folder);
  return *std::move(file);
}

std::string Damage(std::string file, const uint8_t* data, size_t size) {
  constexpr uint32_t kCut = 0xffffff, kFromEnd = 0x800000;
  for (; size >= 4; data += 4, size -= 4) {
    const uint32_t offset = data[0] | uint32_t{data[1]} << 8 | uint32_t{data[2]} << 16;
    if (offset == kCut) {
      file.resize(std::min(file.size(), size_t{256} * data[3]));
    } else if (!file.empty()) {
      const size_t from_start = (offset & ~kFromEnd) % file.size();
      const bool from_end = (offset & kFromEnd) != 0;
      file[from_end ? file.size() - 1 - from_start : from_start] = static_cast<char>(data[3]);
    }
  }
  return file;
}

void ReadAll(const Store& store) {
  constexpr size_t kPage = 2, kMostPages = 100;
  (void)store.NextEventSequence().ok();
  std::vector<RunId> ids = {RunId("tiny-abc234")};
  if (const auto runs = store.LoadRuns(); runs.ok()) {
    for (const RunRecord& run : runs->runs) ids.push_back(run.id);
  }
  for (const RunId& id : ids) {
    uint64_t after = 0;
    for (size_t i = 0; i < kMostPages; ++i) {
      const auto events = store.Events(id.value(), after, kPage);
      if (!events.ok() || events->empty() || events->back().sequence() <= after) break;
      after = events->back().sequence();
    }
    after = 0;
    for (size_t i = 0; i < kMostPages; ++i) {
      const auto logs = store.Logs(id, after, kPage);
      if (!logs.ok() || logs->empty() || logs->back().sequence() <= after) break;
      after = logs->back().sequence();
    }
    (void)store.Steps(id, 0, kPage).ok();
  }
}

}  // namespace
}  // namespace longhaul::coordinator

LH_FUZZ_TARGET(store) {
  using namespace longhaul::coordinator;
  static const std::string folder = Folder();
  static const std::string whole = WholeFile(folder);
  const std::string path = folder + "/store.db";
  const std::string damaged = Damage(whole, data, size);
  RemoveStore(folder);
  if (!longhaul::WriteFileAtomic(path, damaged).ok()) std::abort();
  const auto store = Store::Open(folder);
  if (!store.ok()) {
    const auto now = longhaul::ReadFile(path);
    if (!now.ok() || *now != damaged) std::abort();
    return false;
  }
  ReadAll(**store);
  return true;
}
