#include "coordinator/store/store_check.h"

#include <fmt/core.h>

#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "coordinator/store/sqlite.h"

namespace longhaul::coordinator {

namespace {

StatusOr<std::vector<std::string>> TablesOf(sqlite::Database& database) {
  std::vector<std::string> tables;
  LH_ASSIGN_OR_RETURN(sqlite::Statement names,
                      database.Prepare("SELECT name FROM sqlite_schema WHERE type='table'"));
  while (true) {
    LH_ASSIGN_OR_RETURN(const bool row, names.Next());
    if (!row) return tables;
    tables.emplace_back(names.Bytes(0));
  }
}

Status CheckTables(const std::string& path, const std::function<bool()>& stop) {
  LH_ASSIGN_OR_RETURN(sqlite::Database database,
                      sqlite::Database::Open(path, SQLITE_OPEN_READONLY));
  LH_RETURN_IF_ERROR(database.Execute("PRAGMA busy_timeout=5000"));
  LH_ASSIGN_OR_RETURN(const std::vector<std::string> tables, TablesOf(database));
  for (const std::string& table : tables) {
    if (stop()) return absl::OkStatus();
    LH_ASSIGN_OR_RETURN(const std::string said,
                        database.QueryText(fmt::format("PRAGMA quick_check('{}')", table)));
    if (said != "ok") return DataLoss("table {}: {}", table, said);
  }
  return absl::OkStatus();
}

}  // namespace

Status CheckStore(const std::string& path, const std::function<bool()>& stop) {
  const Status found = CheckTables(path, stop);
  if (!absl::IsDataLoss(found)) return found;
  return DataLoss("state store {} is damaged ({})", path, Message(found));
}

StoreCheck::StoreCheck(std::string path, Pace pace, Damaged damaged, std::mutex* held)
    : path_(std::move(path)),
      pace_(pace),
      damaged_(std::move(damaged)),
      held_(held),
      thread_([this] { Run(); }) {}

StoreCheck::~StoreCheck() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

Status StoreCheck::found() const {
  const std::lock_guard lock(mutex_);
  return found_;
}

bool StoreCheck::is_closing() const {
  const std::lock_guard lock(mutex_);
  return closing_;
}

bool StoreCheck::Sleep(absl::Duration duration) {
  std::unique_lock lock(mutex_);
  return !changed_.wait_until(lock, Deadline::After(duration).time().ToChrono(),
                              [this] { return closing_; });
}

void StoreCheck::Look() {
  const std::unique_lock held =
      held_ == nullptr ? std::unique_lock<std::mutex>() : std::unique_lock(*held_);
  const Status found = CheckStore(path_, [this] { return is_closing(); });
  {
    const std::lock_guard lock(mutex_);
    // A file that cannot be read now proves nothing.
    if (found.ok() || absl::IsDataLoss(found)) found_ = found;
  }
  if (absl::IsDataLoss(found)) {
    LogError("{}", Message(found));
    if (damaged_) damaged_(found);
  } else if (!found.ok()) {
    LogWarning("the store is not looked through: {}", Message(found));
  }
}

void StoreCheck::Run() {
  for (bool goes_on = Sleep(pace_.first); goes_on; goes_on = Sleep(pace_.pause)) Look();
}

}  // namespace longhaul::coordinator
