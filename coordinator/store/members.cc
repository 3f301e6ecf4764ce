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
                        "revoked_unix_ms, token_sha256 FROM members"));
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
    row.token_sha256 = rows.Bytes(7);
    std::string name = row.status.name();
    rows_.emplace(std::move(name), std::move(row));
  }
}

Status Members::AddToken(const JoinToken& token, int64_t uses, absl::Time until, absl::Time now,
                         Written* written, const Once& once, bool* repeated,
                         uint32_t most_members) {
  const absl::Duration longest = most_members > 0 ? kLongestGroupTokenLife : kLongestTokenLife;
  if (until <= now || until > now + longest) {
    return InvalidArgument(
        "expected a time of 1 s to {} for a join token, got {}{}", absl::FormatDuration(longest),
        absl::FormatDuration(until - now),
        most_members > 0 ? "" : "; one with a limit of members (--members) may last longer");
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
                        database_.Prepare("INSERT INTO join_tokens VALUES(?,?,?,?,?)"));
    const std::string secret_sha256 = Sha256Hex(token.secret);
    if (!once.id.empty()) {
      LH_ASSIGN_OR_RETURN(const bool again,
                          NoteTokenOf(once, secret_sha256, uses, now, &database_));
      if (repeated != nullptr) *repeated = again;
    }
    return insert.Args(secret_sha256, ToString(token.role), uses, Ms(until), int64_t{most_members})
        .Run();
  };
  return journal_->Write(database_, add, written);
}

StatusOr<std::string> Members::UseToken(std::string_view secret, Role wanted, const Row* known,
                                        absl::Time now) {
  const bool again = known != nullptr;
  const bool has_place = again && EndOf(known->status) > Ms(now);
  const std::string hash = Sha256Hex(secret);
  LH_ASSIGN_OR_RETURN(sqlite::Statement find,
                      database_.Prepare("SELECT role, uses_left, until_unix_ms, most_members FROM "
                                        "join_tokens WHERE secret_sha256 = ?"));
  LH_ASSIGN_OR_RETURN(const bool found, find.Args(hash).Next());
  if (!found) return NoSuchToken();
  LH_ASSIGN_OR_RETURN(const Role role, ParseRole(find.Bytes(0)));
  const int64_t uses = find.Int(1), until = find.Int(2), most = find.Int(3);
  if (Ms(now) >= until || (uses == 0 && !again)) return NoSuchToken();
  if (!MayJoinAs(role, wanted)) {
    return PermissionDenied("this join token is for the role {}, and {} was asked for",
                            ToString(role), ToString(wanted));
  }
  if (most > 0 && !has_place && MembersOf(hash, now) >= most) {
    return ResourceExhausted(
        "this join token is for {} members at a time, and has as many; one that is gone makes room "
        "within {}, and `longhaul members revoke` makes room at once",
        most, absl::FormatDuration(kGroupMemberLife));
  }
  if (uses >= 0 && !again) {
    LH_ASSIGN_OR_RETURN(
        sqlite::Statement use,
        database_.Prepare("UPDATE join_tokens SET uses_left = ? WHERE secret_sha256 = ?"));
    LH_RETURN_IF_ERROR(use.Args(uses - 1, hash).Run());
  }
  return most > 0 ? hash : std::string();
}

uint32_t Members::MembersOf(std::string_view token_sha256, absl::Time now) const {
  return static_cast<uint32_t>(std::ranges::count_if(rows_, [&](const auto& entry) {
    const v1::MemberStatus& status = entry.second.status;
    return entry.second.token_sha256 == token_sha256 && EndOf(status) > Ms(now);
  }));
}

StatusOr<std::vector<v1::TokenStatus>> Members::ListTokens(absl::Time now) {
  const std::lock_guard lock(mutex_);
  LH_ASSIGN_OR_RETURN(
      sqlite::Statement find,
      database_.Prepare("SELECT secret_sha256, role, until_unix_ms, uses_left, most_members FROM "
                        "join_tokens WHERE until_unix_ms > ? AND uses_left <> 0 "
                        "ORDER BY until_unix_ms, secret_sha256"));
  find.Args(Ms(now));
  std::vector<v1::TokenStatus> tokens;
  while (true) {
    LH_ASSIGN_OR_RETURN(const bool more, find.Next());
    if (!more) return tokens;
    const std::string hash(find.Bytes(0));
    v1::TokenStatus& token = tokens.emplace_back();
    token.set_id(hash.substr(0, kTokenIdDigits));
    token.set_role(std::string(find.Bytes(1)));
    token.set_until_unix_ms(find.Int(2));
    token.set_uses_left(find.Int(3));
    token.set_members_most(static_cast<uint32_t>(find.Int(4)));
    if (token.members_most() > 0) token.set_members(MembersOf(hash, now));
  }
}

Status Members::RevokeToken(const std::string& id, absl::Time now, Written* written) {
  LH_ASSIGN_OR_RETURN(const std::vector<v1::TokenStatus> tokens, ListTokens(now));
  if (std::ranges::find(tokens, id, &v1::TokenStatus::id) == tokens.end()) {
    return NotFound("there is no join token '{}'; `longhaul token list` lists them", id);
  }
  const std::lock_guard lock(mutex_);
  const auto remove = [&]() -> Status {
    LH_ASSIGN_OR_RETURN(
        sqlite::Statement statement,
        database_.Prepare(fmt::format(
            "DELETE FROM join_tokens WHERE substr(secret_sha256, 1, {}) = ?", kTokenIdDigits)));
    return statement.Args(id).Run();
  };
  return journal_->Write(database_, remove, written);
}

absl::Duration Members::LifeFor(const std::string& name, absl::Duration usual) const {
  const std::lock_guard lock(rows_mutex_);
  const auto found = rows_.find(name);
  const bool of_group = found != rows_.end() && !found->second.token_sha256.empty();
  return of_group ? std::min(usual, kGroupMemberLife) : usual;
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
  Row row;
  const Status written = journal_->Write(database_, [&]() -> Status {
    LH_ASSIGN_OR_RETURN(row, RowFor(secret, wish, now));
    LH_RETURN_IF_ERROR(CheckKey(wish.key_sha256));
    const bool of_group = !row.token_sha256.empty();
    row.status.set_until_unix_ms(Ms(of_group ? std::min(until, now + kGroupMemberLife) : until));
    return Insert(row);
  });
  LH_RETURN_IF_ERROR(written);
  const std::lock_guard rows(rows_mutex_);
  rows_[row.status.name()] = row;
  return Member{row.status.name(), wish.role, wish.worker_id};
}

StatusOr<Members::Row> Members::RowFor(std::string_view secret, const JoinWish& wish,
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
  LH_ASSIGN_OR_RETURN(std::string token, UseToken(secret, wish.role, known, now));
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
  Row row{.status = {}, .key_sha256 = wish.key_sha256, .token_sha256 = std::move(token)};
  if (known != nullptr) {
    row.status = known->status;
    return row;
  }
  LH_ASSIGN_OR_RETURN(*row.status.mutable_name(), FreeName(wish.name));
  row.status.set_role(std::string(ToString(wish.role)));
  row.status.set_worker_id(wish.worker_id);
  row.status.set_joined_unix_ms(Ms(now));
  return row;
}

Status Members::Insert(const Row& row) {
  const v1::MemberStatus& member = row.status;
  LH_ASSIGN_OR_RETURN(sqlite::Statement insert,
                      database_.Prepare("INSERT OR REPLACE INTO members VALUES(?,?,?,?,?,?,?,?)"));
  return insert
      .Args(member.name(), member.role(), member.worker_id(), row.key_sha256,
            member.joined_unix_ms(), member.until_unix_ms(), member.revoked_unix_ms(),
            row.token_sha256)
      .Run();
}

Status Members::Store(const Row& row, Written* written) {
  LH_RETURN_IF_ERROR(journal_->Write(
      database_, [&] { return Insert(row); }, written));
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
