#include "coordinator/store/change_log.h"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>
#include <utility>

namespace longhaul::coordinator {
namespace {

Status NoChange(std::string_view what) {
  return DataLoss("state store: the table of changes is damaged: {}", what);
}

// A row with term, number and chain.
History HistoryIn(const sqlite::Statement& row) {
  return {.term = static_cast<uint64_t>(row.Int(0)),
          .number = static_cast<uint64_t>(row.Int(1)),
          .chain = static_cast<uint64_t>(row.Int(2))};
}

}  // namespace

StatusOr<Standing> ReadStanding(sqlite::Database& database) {
  Standing standing;
  LH_ASSIGN_OR_RETURN(sqlite::Statement applied,
                      database.Prepare("SELECT term, number, chain FROM applied"));
  LH_ASSIGN_OR_RETURN(const bool any, applied.Next());
  if (any) standing.applied = HistoryIn(applied);
  const uint64_t number = standing.applied.number;
  LH_ASSIGN_OR_RETURN(
      sqlite::Statement logged,
      database.Prepare("SELECT term, number, chain FROM changes WHERE number>=?1 ORDER BY number"));
  logged.Args(number);
  while (true) {
    LH_ASSIGN_OR_RETURN(const bool more, logged.Next());
    if (!more) return standing;
    const History history = HistoryIn(logged);
    // The change that the tables have may have been deleted, but no later one.
    if (history == standing.applied) continue;
    if (history.number != standing.logged().number + 1) {
      return NoChange(fmt::format("change {} follows change {}, which the other tables have",
                                  history.number, standing.logged().number));
    }
    standing.tail.push_back(history);
  }
}

StatusOr<std::optional<v1::StoreChange>> ReadChange(sqlite::Database& database, uint64_t number) {
  LH_ASSIGN_OR_RETURN(
      sqlite::Statement rows,
      database.Prepare("SELECT term, number, chain, bytes FROM changes WHERE number=?1"));
  LH_ASSIGN_OR_RETURN(const bool found, rows.Args(number).Next());
  if (!found) return std::optional<v1::StoreChange>();
  std::optional<v1::StoreChange> change(std::in_place);
  const std::string_view bytes = rows.Bytes(3);
  const History history = HistoryIn(rows);
  if (!change->ParseFromArray(bytes.data(), static_cast<int>(bytes.size())) ||
      change->term() != history.term || change->number() != history.number) {
    return NoChange(fmt::format("change {} cannot be read", number));
  }
  change->set_chain(history.chain);
  return change;
}

Status LogChange(sqlite::Database& database, const NamedChange& named) {
  LH_ASSIGN_OR_RETURN(
      sqlite::Statement insert,
      database.Prepare("INSERT OR REPLACE INTO changes(number, term, chain, unix_ms, bytes) "
                       "VALUES(?,?,?,?,?)"));
  const v1::StoreChange& change = named.change;
  return insert
      .Args(change.number(), change.term(), change.chain(), change.unix_ms(),
            sqlite::Blob{named.bytes})
      .Run();
}

Status NoteApplied(sqlite::Database& database, const History& history) {
  LH_ASSIGN_OR_RETURN(
      sqlite::Statement upsert,
      database.Prepare("INSERT OR REPLACE INTO applied(id, number, term, chain) VALUES(1,?,?,?)"));
  return upsert.Args(history.number, history.term, history.chain).Run();
}

Status ApplyLogged(sqlite::Database& database, uint64_t number) {
  LH_ASSIGN_OR_RETURN(const std::optional<v1::StoreChange> change, ReadChange(database, number));
  if (!change) return NoChange(fmt::format("change {} is missing", number));
  LH_RETURN_IF_ERROR(database.Play(*change));
  return NoteApplied(database, HistoryOf(*change));
}

Status CutChanges(sqlite::Database& database, uint64_t number) {
  LH_ASSIGN_OR_RETURN(sqlite::Statement cut,
                      database.Prepare("DELETE FROM changes WHERE number>?1"));
  return cut.Args(number).Run();
}

// ---- Trimming ----------------------------------------------------------------------

Status ChangeTrimmer::Count(sqlite::Database& database) {
  LH_ASSIGN_OR_RETURN(
      sqlite::Statement rows,
      database.Prepare("SELECT count(*), coalesce(sum(length(bytes)), 0) FROM changes"));
  LH_RETURN_IF_ERROR(rows.Next().status());
  changes_ = static_cast<uint64_t>(rows.Int(0));
  bytes_ = static_cast<uint64_t>(rows.Int(1));
  return absl::OkStatus();
}

Status ChangeTrimmer::Added(sqlite::Database& database, uint64_t bytes, uint64_t keep_after) {
  ++changes_;
  bytes_ += bytes;
  trims_ |= changes_ > kept_.changes || bytes_ > kept_.bytes;
  if (!trims_) return absl::OkStatus();
  if (pause_ > 0) {
    --pause_;
    return absl::OkStatus();
  }
  // The newest stays, whatever its size: it says where the store stands.
  LH_ASSIGN_OR_RETURN(sqlite::Statement oldest,
                      database.Prepare("SELECT number, length(bytes) FROM changes WHERE number<=?1 "
                                       "AND number<(SELECT max(number) FROM changes) ORDER BY "
                                       "number LIMIT ?2"));
  oldest.Args(keep_after, kAtOnce);
  std::optional<int64_t> last;
  const auto enough = [&] {
    return changes_ <= kept_.changes / 4 * 3 && bytes_ <= kept_.bytes / 4 * 3;
  };
  while (!enough()) {
    LH_ASSIGN_OR_RETURN(const bool more, oldest.Next());
    if (!more) break;
    last = oldest.Int(0);
    --changes_;
    bytes_ -= std::min(bytes_, static_cast<uint64_t>(oldest.Int(1)));
  }
  trims_ = !enough();
  // A follower lacks the rest.
  if (!last) {
    pause_ = kAtOnce;
    return absl::OkStatus();
  }
  LH_ASSIGN_OR_RETURN(sqlite::Statement trim,
                      database.Prepare("DELETE FROM changes WHERE number<=?1"));
  return trim.Args(*last).Run();
}

// ---- Reading -----------------------------------------------------------------------

StatusOr<ChangeReader> ChangeReader::Begin(const std::string& store) {
  LH_ASSIGN_OR_RETURN(sqlite::Database database,
                      sqlite::Database::Open(store, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOFOLLOW));
  LH_RETURN_IF_ERROR(database.Execute("PRAGMA busy_timeout=5000; BEGIN"));
  LH_ASSIGN_OR_RETURN(const Standing standing, ReadStanding(database));
  return ChangeReader(std::move(database), standing.applied);
}

StatusOr<std::optional<uint64_t>> ChangeReader::Resume(const std::optional<Standing>& follower) {
  next_ = 0;
  if (!follower) return std::optional<uint64_t>();
  Status trouble;
  const auto at = [&](uint64_t number) -> std::optional<History> {
    if (number == newest_.number) return newest_;
    if (number > newest_.number) return std::nullopt;
    const StatusOr<std::optional<v1::StoreChange>> change = ReadChange(database_, number);
    if (!change.ok()) trouble = change.status();
    if (!change.ok() || !change->has_value()) return std::nullopt;
    return HistoryOf(**change);
  };
  const std::optional<uint64_t> after = ResumeAfter(*follower, at);
  LH_RETURN_IF_ERROR(trouble);
  if (after) next_ = *after + 1;
  return after;
}

StatusOr<std::optional<v1::StoreChange>> ChangeReader::Next() {
  if (next_ == 0 || next_ > newest_.number) return std::optional<v1::StoreChange>();
  LH_ASSIGN_OR_RETURN(std::optional<v1::StoreChange> change, ReadChange(database_, next_));
  // Changes are deleted oldest first, so none is missing among the newer ones.
  if (!change) return NoChange(fmt::format("change {} is missing", next_));
  ++next_;
  return change;
}

}  // namespace longhaul::coordinator
