// Members and join tokens, in two tables of the store. A member is a worker, user, admin or witness
// with a certificate. A join token is a secret with which somebody becomes a member; the store has
// only its SHA-256. A member that has ended, because it was revoked or its certificate expired, is
// forgotten after a while, but for its name and its key: neither can become a member again, so no
// later member inherits the runs of an earlier one.
//
// Thread-safe. Check and List are answered from memory, and never wait for the disk; changes are on
// disk when a call returns, and may wait as long as the journal does (journal.h). Besides the
// errors that are named, changes may return those of the store (store.h).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "base/status.h"
#include "coordinator/state/once.h"
#include "coordinator/store/journal.h"
#include "coordinator/store/sqlite.h"
#include "longhaul/v1/member.pb.h"
#include "proto/identity/join_token.h"
#include "proto/identity/member.h"

namespace longhaul::coordinator {

// Maximum number of stored join tokens; expired ones are deleted.
inline constexpr int64_t kMaxJoinTokens = 10'000;
inline constexpr size_t kMaxMembers = 100'000;
// Maximum number of names and keys of members that were forgotten. Above it none is forgotten.
inline constexpr int64_t kMaxFormerMembers = 1'000'000;
// How long members are listed after their end.
inline constexpr absl::Duration kMembersKept = absl::Hours(24 * 90);
inline constexpr int64_t kAnyNumber = -1;  // a join token that may be used any number of times
// Every join token ends. The longest life of one, and that of one for which nobody says a life.
inline constexpr absl::Duration kLongestTokenLife = absl::Hours(24 * 30);
// The same of a token that limits how many members it has at a time.
inline constexpr absl::Duration kLongestGroupTokenLife = absl::Hours(24 * 400);
// How long a certificate of such a member lasts. Members renew theirs, so this is how long one that
// is gone takes up room.
inline constexpr absl::Duration kGroupMemberLife = absl::Hours(1);
// Digits of a token's SHA-256 by which people name the token.
inline constexpr size_t kTokenIdDigits = 12;
inline constexpr absl::Duration kDefaultTokenLife = absl::Hours(1);

// The request of a joining member.
struct JoinWish {
  Role role = Role::kUser;
  std::string name;        // wished name; Join changes it if it is taken
  std::string worker_id;   // empty unless a worker joins
  std::string key_sha256;  // SHA-256 of the member's public key
};

class Members {
 public:
  // Opens the members of a state directory whose Store is open. `journal`: that store's; it must
  // outlive this object.
  static StatusOr<std::unique_ptr<Members>> Open(const std::string& state_dir, Journal* journal);

  // Adds a token that may be used `uses` times (kAnyNumber: any number of times) before `until`.
  // kInvalidArgument: `until` is not after `now`, or more than kLongestTokenLife after it.
  // kResourceExhausted: there are too many tokens.
  // `most_members` above 0: the token is for a group of machines that come and go. At most so many
  // of those who joined with it are members at a time; `until` may be kLongestGroupTokenLife after
  // `now`; members have certificates of kGroupMemberLife.
  // `written`: gets the change; may be null.
  // `once`: set for a call that may be made again, whose earlier token then goes
  // (token_requests.h); `repeated`: gets whether there was one, and may be null.
  Status AddToken(const JoinToken& token, int64_t uses, absl::Time until, absl::Time now,
                  Written* written = nullptr, const Once& once = {}, bool* repeated = nullptr,
                  uint32_t most_members = 0);
  // Returns the tokens with which somebody may join at `now`, by their end.
  StatusOr<std::vector<v1::TokenStatus>> ListTokens(absl::Time now);
  // Removes the token with this id (v1::TokenStatus). Its members stay. kNotFound: there is none.
  Status RevokeToken(const std::string& id, absl::Time now, Written* written = nullptr);
  // Returns until when a token may be used; nullopt: there is no such token, or it is used up.
  StatusOr<std::optional<absl::Time>> TokenUntil(std::string_view secret);
  // Makes a member whose certificate is valid until `until`, and uses up one use of the token. A
  // member that joins again, with the same key, role and worker id, costs no use. A worker id whose
  // certificate has expired goes to the new key. kUnauthenticated: no such token, or it is used up
  // or expired. kPermissionDenied: the token is for another role, or the key is that of a member
  // that was revoked or forgotten. kAlreadyExists: another key has this worker id.
  // kInvalidArgument: not a valid member. kResourceExhausted: too many members, or as many as the
  // token allows at a time.
  StatusOr<Member> Join(std::string_view secret, const JoinWish& wish, absl::Time now,
                        absl::Time until);
  // Returns how long a certificate for this member shall last: `usual`, but at most
  // kGroupMemberLife for one whose token limits its members.
  absl::Duration LifeFor(const std::string& name, absl::Duration usual) const;
  // Records until when a member's newest certificate is valid. kNotFound: no such member.
  Status Renew(const std::string& name, absl::Time until);
  // Checks that there is a member with this name, role, worker id and key, and that it was not
  // revoked. kUnauthenticated says what is wrong. If the key were not compared, an attacker with an
  // old copy of the authority could pose as any member.
  Status Check(const Member& member, std::string_view key_sha256) const;
  // Revokes a member. kNotFound: no such member. kFailedPrecondition: it was revoked already.
  // `written`: gets the change; may be null.
  Status Revoke(const std::string& name, absl::Time now, Written* written = nullptr);
  std::vector<v1::MemberStatus> List() const;
  // Forgets the members that ended before `before`. Returns how many.
  StatusOr<size_t> Forget(absl::Time before);
  // Makes all certificates and join tokens count as expired from `until` on, because the authority
  // that they are of is not trusted any longer.
  Status EndAllBy(absl::Time until);

 private:
  Members(sqlite::Database database, Journal* journal)
      : journal_(journal), database_(std::move(database)) {}
  struct Row {
    v1::MemberStatus status;
    std::string key_sha256;
    std::string token_sha256;  // the token that it joined with, if that limits its members
  };
  Status Load();
  // Uses the token. Returns its SHA-256 if it limits its members, else "". `known`: the row of
  // somebody who joins again, which costs no use; null: somebody new.
  StatusOr<std::string> UseToken(std::string_view secret, Role wanted, const Row* known,
                                 absl::Time now);
  // Counts who has joined with this token and is a member.
  uint32_t MembersOf(std::string_view token_sha256, absl::Time now) const;
  // Uses the token, and returns the new member's row.
  StatusOr<Row> RowFor(std::string_view secret, const JoinWish& wish, absl::Time now);
  Status Insert(const Row& row);
  Status Store(const Row& row, Written* written = nullptr);
  StatusOr<std::string> FreeName(const std::string& wished);
  StatusOr<bool> IsFormer(std::string_view column, const std::string& value);
  // Checks that no member with this key was revoked or forgotten.
  Status CheckKey(const std::string& key_sha256);

  Journal* const journal_;
  std::mutex mutex_;  // held for a change; guards the next member
  sqlite::Database database_;
  // Held for moments. Changes only with mutex_ held, too.
  mutable std::mutex rows_mutex_;
  std::map<std::string, Row, std::less<>> rows_;  // by name
};

}  // namespace longhaul::coordinator
