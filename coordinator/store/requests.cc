#include "coordinator/store/requests.h"

#include <string>

namespace longhaul::coordinator {

Status RequestRows::Prepare(sqlite::Database& database) {
  LH_ASSIGN_OR_RETURN(upsert_, database.Prepare("INSERT OR REPLACE INTO requests(owner, id, kind, "
                                                "asked_sha256, reply, unix_ms) "
                                                "VALUES(?,?,?,?,?,?)"));
  LH_ASSIGN_OR_RETURN(delete_, database.Prepare("DELETE FROM requests WHERE owner=? AND id=?"));
  return absl::OkStatus();
}

Status RequestRows::Write(const write::Answered& answered) {
  const AnsweredCall& call = answered.call;
  return upsert_
      .Args(call.owner, call.id, call.kind, call.asked_sha256, sqlite::Blob{call.reply},
            call.unix_ms)
      .Run();
}

Status RequestRows::Write(const write::AnswerForgotten& forgotten) {
  return delete_.Args(forgotten.owner, forgotten.id).Run();
}

// A statement, so that the journal has something to name. No call has an empty id.
Status RequestRows::Write(const write::Barrier& /*barrier*/) {
  return delete_.Args("", "").Run();
}

StatusOr<std::vector<AnsweredCall>> ReadAnswered(sqlite::Database& database) {
  LH_ASSIGN_OR_RETURN(
      sqlite::Statement rows,
      database.Prepare("SELECT owner, id, kind, asked_sha256, reply, unix_ms FROM requests"));
  std::vector<AnsweredCall> calls;
  while (true) {
    LH_ASSIGN_OR_RETURN(const bool row, rows.Next());
    if (!row) return calls;
    calls.push_back({.owner = std::string(rows.Bytes(0)),
                     .id = std::string(rows.Bytes(1)),
                     .kind = std::string(rows.Bytes(2)),
                     .asked_sha256 = std::string(rows.Bytes(3)),
                     .reply = std::string(rows.Bytes(4)),
                     .unix_ms = rows.Int(5)});
  }
}

}  // namespace longhaul::coordinator
