#include "coordinator/store/token_requests.h"

namespace longhaul::coordinator {
namespace {

constexpr std::string_view kTokenKind = "token";
// As other answers (coordinator/state/queries/request_book.h).
constexpr absl::Duration kTokensNoted = absl::Hours(24);

// Takes the token back with which an earlier try was answered.
Status TakeBack(const std::string& secret_sha256, int64_t uses, sqlite::Database* database) {
  LH_ASSIGN_OR_RETURN(
      sqlite::Statement find,
      database->Prepare("SELECT 1 FROM join_tokens WHERE secret_sha256=?1 AND uses_left=?2 AND "
                        "NOT EXISTS(SELECT 1 FROM members WHERE token_sha256=?1)"));
  LH_ASSIGN_OR_RETURN(const bool is_unused, find.Args(secret_sha256, uses).Next());
  if (!is_unused) {
    return absl::FailedPreconditionError(
        "the join token of this request was used or has ended; make another one, without the id");
  }
  LH_ASSIGN_OR_RETURN(sqlite::Statement take,
                      database->Prepare("DELETE FROM join_tokens WHERE secret_sha256=?"));
  return take.Args(secret_sha256).Run();
}

}  // namespace

StatusOr<bool> NoteTokenOf(const Once& once, const std::string& secret_sha256, int64_t uses,
                           absl::Time now, sqlite::Database* database) {
  LH_ASSIGN_OR_RETURN(
      sqlite::Statement find,
      database->Prepare("SELECT kind, asked_sha256, reply FROM requests WHERE owner=? AND id=?"));
  LH_ASSIGN_OR_RETURN(const bool again, find.Args(once.owner, once.id).Next());
  if (again) {
    if (find.Bytes(0) != kTokenKind || find.Bytes(1) != once.asked_sha256) {
      return InvalidArgument("the request id {} belongs to another call; make a new id", once.id);
    }
    LH_RETURN_IF_ERROR(TakeBack(std::string(find.Bytes(2)), uses, database));
  }
  LH_ASSIGN_OR_RETURN(sqlite::Statement forget,
                      database->Prepare("DELETE FROM requests WHERE kind=? AND unix_ms<?"));
  LH_RETURN_IF_ERROR(forget.Args(kTokenKind, absl::ToUnixMillis(now - kTokensNoted)).Run());
  LH_ASSIGN_OR_RETURN(
      sqlite::Statement note,
      database->Prepare("INSERT OR REPLACE INTO requests(owner, id, kind, asked_sha256, reply, "
                        "unix_ms) VALUES(?,?,?,?,?,?)"));
  LH_RETURN_IF_ERROR(note.Args(once.owner, once.id, kTokenKind, once.asked_sha256,
                               sqlite::Blob{secret_sha256}, absl::ToUnixMillis(now))
                         .Run());
  return again;
}

}  // namespace longhaul::coordinator
