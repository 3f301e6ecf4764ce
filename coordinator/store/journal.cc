#include "coordinator/store/journal.h"

#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/watchdog.h"

namespace longhaul::coordinator {
namespace {

// How long a change that the disk refused waits before it is tried again.
constexpr absl::Duration kTryAgain = absl::Seconds(1);

}  // namespace

Status Journal::Open(sqlite::Database& database) {
  const std::lock_guard lock(mutex_);
  LH_ASSIGN_OR_RETURN(const Standing standing, ReadStanding(database));
  LH_RETURN_IF_ERROR(trimmer_.Count(database));
  const std::lock_guard now(now_mutex_);
  standing_ = standing;
  return absl::OkStatus();
}

// Whoever holds it may be waiting for the other coordinator.
std::unique_lock<std::mutex> Journal::LockToWrite() {
  return AwaitOthers([this] { return std::unique_lock(mutex_); });
}

Status Journal::Write(sqlite::Database& database, absl::FunctionRef<Status()> write,
                      Written* written) {
  const std::unique_lock lock = LockToWrite();
  return WriteLocked(database, write, /*begins_term=*/false, written);
}

Status Journal::BeginTerm(sqlite::Database& database, const TermBegun& begun, Written* written) {
  const std::unique_lock lock = LockToWrite();
  Replicator* const replicator = replicator_;
  if (replicator == nullptr) {
    return absl::InternalError("a term begins with a replicator, and the journal has none");
  }
  const auto write = [&]() -> Status {
    LH_ASSIGN_OR_RETURN(sqlite::Statement insert,
                        database.Prepare("INSERT INTO terms(term, tenure, seat, address, unix_ms) "
                                         "VALUES(?,?,?,?,?)"));
    return insert
        .Args(replicator->term(), sqlite::Blob{begun.tenure}, begun.seat, begun.address,
              UnixMsNow())
        .Run();
  };
  return WriteLocked(database, write, /*begins_term=*/true, written);
}

// The tail is as if it had been written here.
Status Journal::ApplyTail(sqlite::Database& database) {
  for (const History& history : standing().tail) {
    LH_RETURN_IF_ERROR(ApplyLogged(database, history.number));
  }
  return absl::OkStatus();
}

Status Journal::Keep(sqlite::Database& database, const NamedChange& named) {
  LH_RETURN_IF_ERROR(LogChange(database, named));
  LH_RETURN_IF_ERROR(NoteApplied(database, named.history()));
  return trimmer_.Added(database, named.bytes.size(), named.history().number);
}

Status Journal::WriteLocked(sqlite::Database& database, absl::FunctionRef<Status()> write,
                            bool begins_term, Written* written) {
  LH_RETURN_IF_ERROR(failure());
  const Standing standing = this->standing();
  Replicator* const replicator = replicator_;
  const uint64_t term = replicator == nullptr ? standing.logged().term : replicator->term();
  Held held = Held::kHere;
  bool secured = false;
  std::optional<NamedChange> named;
  Status status = database.Transact([&]() -> Status {
    // First, because a statement of `write` may need what the tail has changed.
    if (begins_term) LH_RETURN_IF_ERROR(ApplyTail(database));
    v1::StoreChange change;
    database.WriteDownIn(&change);
    const Status done = write();
    database.WriteDownIn(nullptr);
    LH_RETURN_IF_ERROR(done);
    if (change.statements().empty()) return absl::OkStatus();
    LH_ASSIGN_OR_RETURN(named,
                        NameChange(standing, std::move(change), term, UnixMsNow(), begins_term));
    LH_RETURN_IF_ERROR(Keep(database, *named));
    if (replicator == nullptr) return absl::OkStatus();
    {
      const WaitsForOthers waits;
      LH_ASSIGN_OR_RETURN(held, replicator->Secure(named->change));
    }
    secured = true;
    return absl::OkStatus();
  });
  if (!status.ok() && secured) status = Insist(database, *named, std::move(status));
  LH_RETURN_IF_ERROR(status);
  if (!named) return absl::OkStatus();
  const History history = named->history();
  {
    const std::lock_guard lock(now_mutex_);
    standing_ = {.applied = history, .tail = {}};
  }
  if (replicator != nullptr) replicator->Committed(history);
  if (written != nullptr) *written = {.change = history.number, .held = held};
  return absl::OkStatus();
}

Status Journal::Insist(sqlite::Database& database, const NamedChange& named, Status why) {
  // As for a full disk: this may take hours, and others wait.
  const WaitsForOthers waits;
  LogError("the disk refused a write, which cannot be taken back: {}", Message(why));
  for (int tries = 0; absl::IsResourceExhausted(why) || absl::IsUnavailable(why); ++tries) {
    if (tries == 1) {
      LogError("nothing can be stored, and so nothing new is ordered, until there is room: {}",
               Message(why));
    }
    if (when_refused_) when_refused_();
    if (tries > 0) {
      std::unique_lock lock(now_mutex_);
      closed_.wait_for(lock, absl::ToChronoNanoseconds(kTryAgain), [this] { return closing_; });
      if (closing_) break;
    }
    why = database.Transact([&]() -> Status {
      LH_RETURN_IF_ERROR(ApplyTail(database));
      LH_RETURN_IF_ERROR(database.Play(named.change));
      return Keep(database, named);
    });
    if (!why.ok()) continue;
    LogInfo("the disk takes writes again");
    return why;
  }
  const std::lock_guard lock(now_mutex_);
  failure_ = Annotate(why, "a change that may be stored elsewhere cannot be stored here");
  return failure_;
}

void Journal::SetReplicator(Replicator* replicator) {
  const std::lock_guard lock(mutex_);
  replicator_ = replicator;
}

History Journal::committed() const {
  return standing().applied;
}

Standing Journal::standing() const {
  const std::lock_guard lock(now_mutex_);
  return standing_;
}

bool Journal::needs_sync() const {
  const Replicator* const replicator = replicator_;
  return replicator != nullptr && replicator->needs_sync();
}

Status Journal::failure() const {
  const std::lock_guard lock(now_mutex_);
  return failure_;
}

void Journal::Close() {
  {
    const std::lock_guard lock(now_mutex_);
    closing_ = true;
  }
  closed_.notify_all();
}

}  // namespace longhaul::coordinator
