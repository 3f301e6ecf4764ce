#include "coordinator/store/members.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/hash.h"

namespace longhaul::coordinator {
namespace {

int64_t Ms(absl::Time time) {
  return time == absl::InfiniteFuture() ? 0 : absl::ToUnixMillis(time);
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

Status Members::AddToken(const JoinToken& token, int64_t uses, absl::Time until, absl::Time now) {
  const std::lock_guard lock(mutex_);
  return journal_->Write(database_, [&]() -> Status {
    LH_ASSIGN_OR_RETURN(
        sqlite::Statement forget,
        database_.Prepare(
            "DELETE FROM join_tokens WHERE until_unix_ms > 0 AND until_unix_ms <= ?"));
    LH_RETURN_IF_ERROR(forget.Args(Ms(now)).Run());
    LH_ASSIGN_OR_RETURN(const int64_t count,
                        database_.QueryInt("SELECT count(*) FROM join_tokens"));
    if (count >= kMaxJoinTokens) {
      return ResourceExhausted("{} join tokens are in use; wait until the time of some is over",
                               count);
    }
    LH_ASSIGN_OR_RETURN(sqlite::Statement insert,
                        database_.Prepare("INSERT INTO join_tokens VALUES(?,?,?,?)"));
    return insert.Args(Sha256Hex(token.secret), ToString(token.role), uses, Ms(until)).Run();
  });
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
  if ((until != 0 && Ms(now) >= until) || (uses == 0 && !again)) return NoSuchToken();
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

std::string Members::FreeName(const std::string& wished) const {
  std::string name = MemberNameFrom(wished);
  if (!rows_.contains(name)) return name;
  for (size_t number = 2;; ++number) {
    const std::string end = fmt::format("-{}", number);
    std::string numbered = name.substr(0, kMaxMemberNameBytes - end.size()) + end;
    if (!rows_.contains(numbered)) return numbered;
  }
}

StatusOr<Member> Members::Join(std::string_view secret, const JoinWish& wish, absl::Time now,
                               absl::Time until) {
  LH_RETURN_IF_ERROR(CheckMember(
      {.name = MemberNameFrom(wish.name), .role = wish.role, .worker_id = wish.worker_id}));
  const std::lock_guard lock(mutex_);
  v1::MemberStatus status;
  LH_RETURN_IF_ERROR(journal_->Write(database_, [&]() -> Status {
    LH_ASSIGN_OR_RETURN(status, StatusFor(secret, wish, now));
    status.set_until_unix_ms(Ms(until));
    return Insert(status, wish.key_sha256);
  }));
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
  status.set_name(FreeName(wish.name));
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

Status Members::Store(const Row& row) {
  LH_RETURN_IF_ERROR(
      journal_->Write(database_, [&] { return Insert(row.status, row.key_sha256); }));
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
  const std::lock_guard lock(mutex_);
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

Status Members::Revoke(const std::string& name, absl::Time now) {
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
  return Store(row);
}

std::vector<v1::MemberStatus> Members::List() const {
  const std::lock_guard lock(mutex_);
  std::vector<v1::MemberStatus> members;
  for (const auto& [name, row] : rows_) members.push_back(row.status);
  return members;
}

}  // namespace longhaul::coordinator
