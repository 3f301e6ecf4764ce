// The audit log: who did what, in a table of the store. Holds joins, changes of members, of runs
// and of the coordinator itself, and refused calls, the newest kKeptAuditEntries of them.
//
// Entries are written by a thread of this object, many in one transaction, so a caller never waits
// for the disk. A process that is killed loses the entries of its last moment. Thread-safe.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/rate_limit.h"
#include "base/status.h"
#include "coordinator/store/journal.h"
#include "coordinator/store/sqlite.h"
#include "longhaul/v1/member.pb.h"

namespace longhaul::coordinator {

// Older ones are deleted many at a time, so up to 1,000 more may be stored.
inline constexpr uint64_t kKeptAuditEntries = 100'000;
// Entries of a page, and the longest texts of an entry: an object, an outcome.
inline constexpr uint32_t kAuditPage = 1'000;
inline constexpr size_t kMaxAuditObjectBytes = 200, kMaxAuditOutcomeBytes = 400;

// Limits the entries about refused calls, which strangers can cause: one a second for each address,
// and ten a second in all. Pure; not thread-safe.
class RefusalLimit {
 public:
  static constexpr size_t kMaxAddresses = 256;
  // Returns whether a refusal is to be recorded now. `left_out`: how many of this address were not
  // since its last record; those of addresses that are not counted separately are added to whoever
  // comes next.
  bool Take(std::string_view address, MonoTime now, uint64_t* left_out);

 private:
  struct Address {
    MonoTime recorded;
    uint64_t left_out = 0;
  };
  std::map<std::string, Address, std::less<>> addresses_;
  RateLimit all_{10, 20};
  MonoTime free_from_{};
  uint64_t others_left_out_ = 0;
};

class Audit {
 public:
  // Opens the log of a state directory whose Store is open. `journal`: that store's; it must
  // outlive this object. Errors: those of the store.
  static StatusOr<std::unique_ptr<Audit>> Open(const std::string& state_dir, Journal* journal);
  // Writes what is still waiting.
  ~Audit();
  Audit(const Audit&) = delete;
  Audit& operator=(const Audit&) = delete;

  // Records an entry; its time and sequence are set here. All texts are made printable (one line
  // each) and cut to their limits, because peers choose some of them.
  void Record(v1::AuditEntry entry);
  // As Record, for a refused call; limited by RefusalLimit.
  void RecordRefusal(v1::AuditEntry entry);
  // Returns a page of entries, oldest first, with all that was recorded before this call.
  StatusOr<std::vector<v1::AuditEntry>> List(const v1::ListAuditRequest& request);

 private:
  Audit(sqlite::Database database, Journal* journal, uint64_t next, uint64_t kept);
  void Loop();
  Status Write(const std::deque<v1::AuditEntry>& entries);
  void Enqueue(v1::AuditEntry entry);

  Journal* const journal_;
  std::mutex database_mutex_;  // guards the three members below
  sqlite::Database database_;
  uint64_t next_;
  uint64_t kept_;

  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::deque<v1::AuditEntry> waiting_;
  RefusalLimit refusals_;
  uint64_t recorded_ = 0, written_ = 0;  // numbers of entries
  uint64_t lost_ = 0;                    // entries that found the queue full
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace longhaul::coordinator
