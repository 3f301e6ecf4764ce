#include "coordinator/store/audit.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/time/clock.h"
#include "base/log.h"
#include "base/printable.h"
#include "proto/identity/member.h"

namespace longhaul::coordinator {
namespace {

// Entries that wait for the disk. Further ones are counted, and the count is recorded.
constexpr size_t kMostWaiting = 10'000;
constexpr uint64_t kPruneAuditEvery = 1'000;
constexpr absl::Duration kBetweenRefusals = absl::Seconds(1);
constexpr size_t kActionBytes = 40;

}  // namespace

bool RefusalLimit::Take(std::string_view address, MonoTime now, uint64_t* left_out) {
  *left_out = 0;
  auto found = addresses_.find(address);
  if (found == addresses_.end()) {
    if (addresses_.size() >= kMaxAddresses) {
      // Forgets those that have been quiet; what they left out is said by whoever comes next.
      for (auto one = addresses_.begin(); one != addresses_.end();) {
        const bool quiet = now - one->second.recorded >= kBetweenRefusals;
        if (quiet) others_left_out_ += one->second.left_out;
        one = quiet ? addresses_.erase(one) : std::next(one);
      }
    }
    if (addresses_.size() >= kMaxAddresses || now < free_from_) {
      ++others_left_out_;
      return false;
    }
    found = addresses_.emplace(std::string(address), Address{}).first;
  } else if (now - found->second.recorded < kBetweenRefusals || now < free_from_) {
    ++found->second.left_out;
    return false;
  }
  free_from_ = now + all_.Take(now);
  found->second.recorded = now;
  *left_out = std::exchange(found->second.left_out, 0) + std::exchange(others_left_out_, 0);
  return true;
}

StatusOr<std::unique_ptr<Audit>> Audit::Open(const std::string& state_dir, Journal* journal) {
  LH_ASSIGN_OR_RETURN(sqlite::Database database,
                      sqlite::Database::Open(state_dir + "/store.db", SQLITE_OPEN_READWRITE));
  LH_RETURN_IF_ERROR(database.Execute("PRAGMA busy_timeout=5000; PRAGMA synchronous=FULL"));
  LH_ASSIGN_OR_RETURN(const int64_t last,
                      database.QueryInt("SELECT coalesce(max(sequence), 0) FROM audit"));
  LH_ASSIGN_OR_RETURN(const int64_t kept, database.QueryInt("SELECT count(*) FROM audit"));
  return std::unique_ptr<Audit>(new Audit(
      std::move(database), journal, static_cast<uint64_t>(last) + 1, static_cast<uint64_t>(kept)));
}

Audit::Audit(sqlite::Database database, Journal* journal, uint64_t next, uint64_t kept)
    : journal_(journal), database_(std::move(database)), next_(next), kept_(kept), thread_([this] {
        Loop();
      }) {}

Audit::~Audit() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Audit::Record(v1::AuditEntry entry) {
  {
    const std::lock_guard lock(mutex_);
    Enqueue(std::move(entry));
  }
  changed_.notify_all();
}

void Audit::RecordRefusal(v1::AuditEntry entry) {
  {
    const std::lock_guard lock(mutex_);
    uint64_t left_out = 0;
    if (!refusals_.Take(entry.address(), Now(), &left_out)) return;
    entry.set_outcome(Printable(entry.outcome(), kMaxAuditOutcomeBytes));
    if (left_out > 0) *entry.mutable_outcome() += fmt::format(" ({} more before)", left_out);
    Enqueue(std::move(entry));
  }
  changed_.notify_all();
}

// The caller holds mutex_.
void Audit::Enqueue(v1::AuditEntry entry) {
  if (waiting_.size() >= kMostWaiting) {
    ++lost_;
    return;
  }
  entry.set_unix_ms(absl::ToUnixMillis(absl::Now()));
  entry.set_member(Printable(entry.member(), kMaxMemberNameBytes));
  entry.set_role(Printable(entry.role(), kActionBytes));
  entry.set_address(Printable(entry.address(), kMaxMemberNameBytes));
  entry.set_action(Printable(entry.action(), kActionBytes));
  entry.set_object(Printable(entry.object(), kMaxAuditObjectBytes));
  entry.set_outcome(Printable(entry.outcome(), kMaxAuditOutcomeBytes + 40));
  waiting_.push_back(std::move(entry));
  ++recorded_;
}

void Audit::Loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return closing_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    if (const uint64_t lost = std::exchange(lost_, 0); lost > 0) {
      v1::AuditEntry entry;
      entry.set_unix_ms(absl::ToUnixMillis(absl::Now()));
      entry.set_action("audit");
      entry.set_outcome(fmt::format("{} entries came faster than the disk and are missing", lost));
      waiting_.push_back(std::move(entry));
      ++recorded_;
    }
    const std::deque<v1::AuditEntry> entries = std::exchange(waiting_, {});
    lock.unlock();
    if (const Status status = Write(entries); !status.ok()) {
      LogError("{} entries of the audit log are lost: {}", entries.size(), Message(status));
    }
    lock.lock();
    written_ += entries.size();
    changed_.notify_all();
  }
}

Status Audit::Write(const std::deque<v1::AuditEntry>& entries) {
  const std::lock_guard lock(database_mutex_);
  const bool prunes = kept_ + entries.size() >= kKeptAuditEntries + kPruneAuditEvery;
  const Status written = journal_->Write(database_, [&]() -> Status {
    LH_ASSIGN_OR_RETURN(sqlite::Statement insert,
                        database_.Prepare("INSERT INTO audit VALUES(?,?,?,?,?,?,?,?)"));
    uint64_t sequence = next_;
    for (const v1::AuditEntry& entry : entries) {
      LH_RETURN_IF_ERROR(insert
                             .Args(sequence++, entry.unix_ms(), entry.member(), entry.role(),
                                   entry.address(), entry.action(), entry.object(), entry.outcome())
                             .Run());
    }
    if (!prunes) return absl::OkStatus();
    LH_ASSIGN_OR_RETURN(sqlite::Statement prune,
                        database_.Prepare("DELETE FROM audit WHERE sequence <= ?"));
    return prune.Args(sequence - 1 - std::min(sequence - 1, kKeptAuditEntries)).Run();
  });
  LH_RETURN_IF_ERROR(written);
  next_ += entries.size();
  kept_ = prunes ? kKeptAuditEntries : kept_ + entries.size();
  return absl::OkStatus();
}

StatusOr<std::vector<v1::AuditEntry>> Audit::List(const v1::ListAuditRequest& request) {
  {
    std::unique_lock lock(mutex_);
    const uint64_t until = recorded_;
    changed_.wait(lock, [&] { return written_ >= until; });
  }
  const std::lock_guard lock(database_mutex_);
  LH_ASSIGN_OR_RETURN(
      sqlite::Statement rows,
      database_.Prepare("SELECT sequence, unix_ms, member, role, address, action, object, outcome "
                        "FROM audit WHERE sequence > ?1 AND unix_ms >= ?2 AND "
                        "(?3 = '' OR member = ?3 OR object = ?3) ORDER BY sequence LIMIT ?4"));
  const uint32_t limit = request.limit() == 0 ? kAuditPage : std::min(request.limit(), kAuditPage);
  rows.Args(request.after(), request.since_unix_ms(), request.member(), limit);
  std::vector<v1::AuditEntry> entries;
  while (true) {
    LH_ASSIGN_OR_RETURN(const bool row, rows.Next());
    if (!row) return entries;
    v1::AuditEntry& entry = entries.emplace_back();
    entry.set_sequence(static_cast<uint64_t>(rows.Int(0)));
    entry.set_unix_ms(rows.Int(1));
    entry.set_member(std::string(rows.Bytes(2)));
    entry.set_role(std::string(rows.Bytes(3)));
    entry.set_address(std::string(rows.Bytes(4)));
    entry.set_action(std::string(rows.Bytes(5)));
    entry.set_object(std::string(rows.Bytes(6)));
    entry.set_outcome(std::string(rows.Bytes(7)));
  }
}

}  // namespace longhaul::coordinator
