// Members and join tokens, in two tables of the store. A member is a worker, user or admin with a
// certificate. A join token is a secret with which somebody becomes a member; the store has only
// its SHA-256. A member's name is kept for ever, so that no later member inherits the runs of an
// earlier one.
//
// Thread-safe. Queries are answered from memory; changes are on disk when a call returns. Besides
// the errors that are named, changes may return those of the store (store.h).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "base/status.h"
#include "coordinator/store/journal.h"
#include "coordinator/store/sqlite.h"
#include "longhaul/v1/member.pb.h"
#include "proto/identity/join_token.h"
#include "proto/identity/member.h"

namespace longhaul::coordinator {

// Maximum number of stored join tokens; expired ones are deleted.
inline constexpr int64_t kMaxJoinTokens = 10'000;
inline constexpr size_t kMaxMembers = 100'000;
inline constexpr int64_t kAnyNumber = -1;  // a join token that may be used any number of times

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

  // Adds a token that may be used `uses` times (kAnyNumber: any number of times) before `until`;
  // InfiniteFuture means for ever.
  // kResourceExhausted: there are too many tokens.
  Status AddToken(const JoinToken& token, int64_t uses, absl::Time until, absl::Time now);
  // Makes a member whose certificate is valid until `until`, and uses up one use of the token. A
  // member that joins again, with the same key, role and worker id, costs no use. A worker id whose
  // certificate has expired goes to the new key. kUnauthenticated: no such token, or it is used up
  // or expired. kPermissionDenied: the token is for another role. kAlreadyExists: another key has
  // this worker id. kInvalidArgument: not a valid member. kResourceExhausted: too many members.
  StatusOr<Member> Join(std::string_view secret, const JoinWish& wish, absl::Time now,
                        absl::Time until);
  // Records until when a member's newest certificate is valid. kNotFound: no such member.
  Status Renew(const std::string& name, absl::Time until);
  // Checks that there is a member with this name, role, worker id and key, and that it was not
  // revoked. kUnauthenticated says what is wrong. If the key were not compared, an attacker with an
  // old copy of the authority could pose as any member.
  Status Check(const Member& member, std::string_view key_sha256) const;
  // Revokes a member. kNotFound: no such member. kFailedPrecondition: it was revoked already.
  Status Revoke(const std::string& name, absl::Time now);
  std::vector<v1::MemberStatus> List() const;

 private:
  Members(sqlite::Database database, Journal* journal)
      : journal_(journal), database_(std::move(database)) {}
  struct Row {
    v1::MemberStatus status;
    std::string key_sha256;
  };
  Status Load();
  Status CheckToken(std::string_view secret, Role wanted, bool again, absl::Time now);
  // Uses the token, and returns the new member's status.
  StatusOr<v1::MemberStatus> StatusFor(std::string_view secret, const JoinWish& wish,
                                       absl::Time now);
  Status Insert(const v1::MemberStatus& member, const std::string& key_sha256);
  Status Store(const Row& row);
  std::string FreeName(const std::string& wished) const;

  Journal* const journal_;
  mutable std::mutex mutex_;  // guards the members below
  sqlite::Database database_;
  std::map<std::string, Row, std::less<>> rows_;  // by name
};

}  // namespace longhaul::coordinator
