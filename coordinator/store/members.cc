#include "coordinator/store/members.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/hash.h"
#include "coordinator/store/token_requests.h"

namespace longhaul::coordinator {
namespace {

int64_t Ms(absl::Time time) {
  return absl::ToUnixMillis(time);
}

// When a member stopped being one, or will.
int64_t EndOf(const v1::MemberStatus& member) {
  return member.revoked_unix_ms() != 0 ? member.revoked_unix_ms() : member.until_unix_ms();
}

Status NoSuchToken() {
  return absl::UnauthenticatedError(
      "the coordinator knows no such join token, or its time or its uses are over; ask for a new "
      "one (`longhaul token create`)");
}

}  // namespace

StatusOr<std::unique_ptr<Members>> Members::Open(const std::string& state_dir, Journal* journal) {
  LH_ASSIGN_OR_RETURN(sqlite::Database database,
                      sqlite::Database::Open(state_dir + "/store.db", SQLITE_OPEN_READWRITE));
  // The store's own connection writes, too.
  LH_RETURN_IF_ERROR(database.Execute("PRAGMA busy_timeout=5000; PRAGMA synchronous=FULL"));
  std::unique_ptr<Members> members(new Members(std::move(database), journal));
  LH_RETURN_IF_ERROR(members->Load());
  return members;
}

Status Members::Load() {
  LH_ASSIGN_OR_RETURN(
      sqlite::Statement rows,
      database_.Prepare("SELECT name, role, worker_id, key_sha256, joined_unix_ms, until_unix_ms, "
                        "revoked_unix_ms FROM members"));
  while (true) {
    LH_ASSIGN_OR_RETURN(const bool more, rows.Next());
    if (!more) return absl::OkStatus();
    Row row;
    row.status.set_name(std::string(rows.Bytes(0)));
    row.status.set_role(std::string(rows.Bytes(1)));
    row.status.set_worker_id(std::string(rows.Bytes(2)));
    row.key_sha256 = rows.Bytes(3);
    row.status.set_joined_unix_ms(rows.Int(4));
    row.status.set_until_unix_ms(rows.Int(5));
    row.status.set_revoked_unix_ms(rows.Int(6));
    std::string name = row.status.name();
    rows_.emplace(std::move(name), std::move(row));
  }
}

Status Members::AddToken(const JoinToken& token, int64_t uses, absl::Time until, absl::Time now,
                         Written* written, const Once& once, bool* repeated) {
  if (until <= now || until > now + kLongestTokenLife) {
    return InvalidArgument("expected a time of 1 s to {} for a join token, got {}",
                           absl::FormatDuration(kLongestTokenLife),
                           absl::FormatDuration(until - now));
  }
  const std::lock_guard lock(mutex_);
  const auto add = [&]() -> Status {
    LH_ASSIGN_OR_RETURN(sqlite::Statement forget,
                        database_.Prepare("DELETE FROM join_tokens WHERE until_unix_ms <= ?"));
    LH_RETURN_IF_ERROR(forget.Args(Ms(now)).Run());
    LH_ASSIGN_OR_RETURN(const int64_t count,
                        database_.QueryInt("SELECT count(*) FROM join_tokens"));
    if (count >= kMaxJoinTokens) {
      return ResourceExhausted("{} join tokens are in use; wait until the time of some is over",
                               count);
    }
    LH_ASSIGN_OR_RETURN(sqlite::Statement insert,
                        database_.Prepare("INSERT INTO join_tokens VALUES(?,?,?,?)"));
    const std::string secret_sha256 = Sha256Hex(token.secret);
    if (!once.id.empty()) {
      LH_ASSIGN_OR_RETURN(const bool again,
                          NoteTokenOf(once, secret_sha256, uses, now, &database_));
      if (repeated != nullptr) *repeated = again;
    }
    return insert.Args(secret_sha256, ToString(token.role), uses, Ms(until)).Run();
  };
  return journal_->Write(database_, add, written);
}

// `again`: by somebody whom it has made a member already, which costs no use.
Status Members::CheckToken(std::string_view secret, Role wanted, bool again, absl::Time now) {
  const std::string hash = Sha256Hex(secret);
  LH_ASSIGN_OR_RETURN(
      sqlite::Statement find,
      database_.Prepare(
          "SELECT role, uses_left, until_unix_ms FROM join_tokens WHERE secret_sha256 = ?"));
  LH_ASSIGN_OR_RETURN(const bool found, find.Args(hash).Next());
  if (!found) return NoSuchToken();
  LH_ASSIGN_OR_RETURN(const Role role, ParseRole(find.Bytes(0)));
  const int64_t uses = find.Int(1), until = find.Int(2);
  if (Ms(now) >= until || (uses == 0 && !again)) return NoSuchToken();
  if (!MayJoinAs(role, wanted)) {
    return PermissionDenied("this join token is for the role {}, and {} was asked for",
                            ToString(role), ToString(wanted));
  }
  if (uses < 0 || again) return absl::OkStatus();
  LH_ASSIGN_OR_RETURN(
      sqlite::Statement use,
      database_.Prepare("UPDATE join_tokens SET uses_left = ? WHERE secret_sha256 = ?"));
  return use.Args(uses - 1, hash).Run();
}

StatusOr<std::optional<absl::Time>> Members::TokenUntil(std::string_view secret) {
  const std::lock_guard lock(mutex_);
  LH_ASSIGN_OR_RETURN(
      sqlite::Statement find,
      database_.Prepare("SELECT until_unix_ms FROM join_tokens WHERE secret_sha256 = ? AND "
                        "uses_left <> 0"));
  LH_ASSIGN_OR_RETURN(const bool found, find.Args(Sha256Hex(secret)).Next());
  if (!found) return std::optional<absl::Time>();
  return std::optional(absl::FromUnixMillis(find.Int(0)));
}

// `column`: of the table of forgotten members.
StatusOr<bool> Members::IsFormer(std::string_view column, const std::string& value) {
  LH_ASSIGN_OR_RETURN(
      sqlite::Statement find,
      database_.Prepare(fmt::format("SELECT 1 FROM former_members WHERE {} = ?", column)));
  return find.Args(value).Next();
}

StatusOr<std::string> Members::FreeName(const std::string& wished) {
  const std::string name = MemberNameFrom(wished);
  std::string free = name;
  for (size_t number = 2;; ++number) {
    LH_ASSIGN_OR_RETURN(const bool former, IsFormer("name", free));
    if (!former && !rows_.contains(free)) return free;
    const std::string end = fmt::format("-{}", number);
    free = name.substr(0, kMaxMemberNameBytes - end.size()) + end;
  }
}

Status Members::CheckKey(const std::string& key_sha256) {
  LH_ASSIGN_OR_RETURN(bool gone, IsFormer("key_sha256", key_sha256));
  for (const auto& [name, row] : rows_) {
    gone |= row.key_sha256 == key_sha256 && row.status.revoked_unix_ms() != 0;
  }
  if (!gone) return absl::OkStatus();
  return absl::PermissionDeniedError(
      "this key was that of a member that was revoked or has long ended, and no key becomes a "
      "member twice; remove the file with the key, and join again with a new one");
}

StatusOr<Member> Members::Join(std::string_view secret, const JoinWish& wish, absl::Time now,
                               absl::Time until) {
  LH_RETURN_IF_ERROR(CheckMember(
      {.name = MemberNameFrom(wish.name), .role = wish.role, .worker_id = wish.worker_id}));
  const std::lock_guard lock(mutex_);
  v1::MemberStatus status;
  const Status written = journal_->Write(database_, [&]() -> Status {
    LH_ASSIGN_OR_RETURN(status, StatusFor(secret, wish, now));
    LH_RETURN_IF_ERROR(CheckKey(wish.key_sha256));
    status.set_until_unix_ms(Ms(until));
    return Insert(status, wish.key_sha256);
  });
  LH_RETURN_IF_ERROR(written);
  const std::lock_guard rows(rows_mutex_);
  rows_[status.name()] = {status, wish.key_sha256};
  return Member{status.name(), wish.role, wish.worker_id};
}

StatusOr<v1::MemberStatus> Members::StatusFor(std::string_view secret, const JoinWish& wish,
                                              absl::Time now) {
  const Row *known = nullptr, *same_id = nullptr;
  for (const auto& [name, row] : rows_) {
    if (row.status.revoked_unix_ms() != 0) continue;
    if (!wish.worker_id.empty() && row.status.worker_id() == wish.worker_id) same_id = &row;
    if (row.key_sha256 == wish.key_sha256 && row.status.role() == ToString(wish.role) &&
        row.status.worker_id() == wish.worker_id) {
      known = &row;
    }
  }
  LH_RETURN_IF_ERROR(CheckToken(secret, wish.role, known != nullptr, now));
  // An id with a valid certificate is taken. After its end the worker cannot prove that the id is
  // its own, so whoever has a token gets it.
  if (known == nullptr && same_id != nullptr && same_id->status.until_unix_ms() > Ms(now)) {
    return AlreadyExists(
        "the worker's id {} is that of the member {}, with another key; where this is the same "
        "worker and its key is lost: longhaul members revoke {}",
        wish.worker_id, same_id->status.name(), same_id->status.name());
  }
  if (known == nullptr) known = same_id;
  if (known == nullptr && rows_.size() >= kMaxMembers) {
    return ResourceExhausted("this coordinator keeps at most {} members", kMaxMembers);
  }
  if (known != nullptr) return known->status;
  v1::MemberStatus status;
  LH_ASSIGN_OR_RETURN(*status.mutable_name(), FreeName(wish.name));
  status.set_role(std::string(ToString(wish.role)));
  status.set_worker_id(wish.worker_id);
  status.set_joined_unix_ms(Ms(now));
  return status;
}

Status Members::Insert(const v1::MemberStatus& member, const std::string& key_sha256) {
  LH_ASSIGN_OR_RETURN(sqlite::Statement insert,
                      database_.Prepare("INSERT OR REPLACE INTO members VALUES(?,?,?,?,?,?,?)"));
  return insert
      .Args(member.name(), member.role(), member.worker_id(), key_sha256, member.joined_unix_ms(),
            member.until_unix_ms(), member.revoked_unix_ms())
      .Run();
}

Status Members::Store(const Row& row, Written* written) {
  LH_RETURN_IF_ERROR(journal_->Write(
      database_, [&] { return Insert(row.status, row.key_sha256); }, written));
  const std::lock_guard lock(rows_mutex_);
  rows_[row.status.name()] = row;
  return absl::OkStatus();
}

Status Members::Renew(const std::string& name, absl::Time until) {
  const std::lock_guard lock(mutex_);
  const auto found = rows_.find(name);
  if (found == rows_.end()) return absl::NotFoundError("no such member");
  Row row = found->second;
  row.status.set_until_unix_ms(Ms(until));
  return Store(row);
}

Status Members::Check(const Member& member, std::string_view key_sha256) const {
  const std::lock_guard lock(rows_mutex_);
  const auto found = rows_.find(member.name);
  if (found == rows_.end() || found->second.status.role() != ToString(member.role) ||
      found->second.status.worker_id() != member.worker_id) {
    return Unauthenticated("{} {} is no member of this coordinator; join again with a join token",
                           ToString(member.role), member.name);
  }
  if (found->second.status.revoked_unix_ms() != 0) {
    return Unauthenticated("the certificate of {} was revoked", member.name);
  }
  if (found->second.key_sha256 != key_sha256) {
    return Unauthenticated(
        "the certificate of {} is for another key than the one that {} joined with; "
        "join again with a join token",
        member.name, member.name);
  }
  return absl::OkStatus();
}

Status Members::Revoke(const std::string& name, absl::Time now, Written* written) {
  const std::lock_guard lock(mutex_);
  const auto found = rows_.find(name);
  if (found == rows_.end()) {
    return NotFound("there is no member called '{}'; `longhaul members` lists them", name);
  }
  Row row = found->second;
  if (row.status.revoked_unix_ms() != 0) {
    return FailedPrecondition("{} was revoked already", name);
  }
  row.status.set_revoked_unix_ms(Ms(now));
  return Store(row, written);
}

std::vector<v1::MemberStatus> Members::List() const {
  const std::lock_guard lock(rows_mutex_);
  std::vector<v1::MemberStatus> members;
  for (const auto& [name, row] : rows_) members.push_back(row.status);
  return members;
}

StatusOr<size_t> Members::Forget(absl::Time before) {
  const std::lock_guard lock(mutex_);
  std::vector<const Row*> ended;
  for (const auto& [name, row] : rows_) {
    if (EndOf(row.status) < Ms(before)) ended.push_back(&row);
  }
  if (ended.empty()) return size_t{0};
  LH_ASSIGN_OR_RETURN(const int64_t former,
                      database_.QueryInt("SELECT count(*) FROM former_members"));
  const auto room = static_cast<size_t>(std::max<int64_t>(0, kMaxFormerMembers - former));
  if (ended.size() > room) ended.resize(room);
  const Status written = journal_->Write(database_, [&]() -> Status {
    LH_ASSIGN_OR_RETURN(sqlite::Statement insert,
                        database_.Prepare("INSERT OR REPLACE INTO former_members VALUES(?,?)"));
    LH_ASSIGN_OR_RETURN(sqlite::Statement remove,
                        database_.Prepare("DELETE FROM members WHERE name = ?"));
    for (const Row* row : ended) {
      LH_RETURN_IF_ERROR(insert.Args(row->status.name(), row->key_sha256).Run());
      LH_RETURN_IF_ERROR(remove.Args(row->status.name()).Run());
    }
    return absl::OkStatus();
  });
  LH_RETURN_IF_ERROR(written);
  std::vector<std::string> names;
  names.reserve(ended.size());
  for (const Row* row : ended) names.push_back(row->status.name());
  const std::lock_guard rows(rows_mutex_);
  for (const std::string& name : names) rows_.erase(name);
  return names.size();
}

Status Members::EndAllBy(absl::Time until) {
  const std::lock_guard lock(mutex_);
  const Status written = journal_->Write(database_, [&]() -> Status {
    LH_ASSIGN_OR_RETURN(
        sqlite::Statement end,
        database_.Prepare("UPDATE members SET until_unix_ms = ?1 WHERE until_unix_ms > ?1"));
    LH_RETURN_IF_ERROR(end.Args(Ms(until)).Run());
    LH_ASSIGN_OR_RETURN(
        sqlite::Statement end_tokens,
        database_.Prepare("UPDATE join_tokens SET until_unix_ms = ?1 WHERE until_unix_ms > ?1"));
    return end_tokens.Args(Ms(until)).Run();
  });
  LH_RETURN_IF_ERROR(written);
  const std::lock_guard rows(rows_mutex_);
  for (auto& [name, row] : rows_) {
    row.status.set_until_unix_ms(std::min(row.status.until_unix_ms(), Ms(until)));
  }
  return absl::OkStatus();
}

}  // namespace longhaul::coordinator
