#include "coordinator/standby/voting.h"

#include <filesystem>
#include <system_error>

namespace longhaul::coordinator {

StatusOr<VotingWitness> ReadVoting(const std::string& state_dir) {
  const std::string path = state_dir + "/store.db";
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return VotingWitness();
  LH_ASSIGN_OR_RETURN(sqlite::Database database,
                      sqlite::Database::Open(path, SQLITE_OPEN_READONLY));
  LH_RETURN_IF_ERROR(database.Execute("PRAGMA busy_timeout=5000"));
  LH_ASSIGN_OR_RETURN(sqlite::Statement row, database.Prepare("SELECT witness, name FROM voting"));
  LH_ASSIGN_OR_RETURN(const bool there, row.Next());
  if (!there) return VotingWitness();
  return VotingWitness{.id = std::string(row.Bytes(0)), .name = std::string(row.Bytes(1))};
}

StatusOr<std::unique_ptr<Voting>> Voting::Open(const std::string& state_dir, Journal* journal) {
  LH_ASSIGN_OR_RETURN(sqlite::Database database,
                      sqlite::Database::Open(state_dir + "/store.db", SQLITE_OPEN_READWRITE));
  LH_RETURN_IF_ERROR(database.Execute("PRAGMA busy_timeout=5000; PRAGMA synchronous=FULL"));
  return std::unique_ptr<Voting>(new Voting(std::move(database), journal));
}

Status Voting::Set(const VotingWitness& witness) {
  LH_ASSIGN_OR_RETURN(
      sqlite::Statement replace,
      database_.Prepare("INSERT OR REPLACE INTO voting(id, witness, name) VALUES(1, ?1, ?2)"));
  return journal_->Write(database_, [&] { return replace.Args(witness.id, witness.name).Run(); });
}

}  // namespace longhaul::coordinator
