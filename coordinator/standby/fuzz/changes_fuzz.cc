// Any bytes as what a coordinator sends its standby: pieces of a change of the store, which are
// joined and replayed in a copy of the store. Nothing but the copy is touched.
//
// The input: pieces of a v1::StoreChange, u8 size and the bytes; the last piece ends the change.
#include <fmt/core.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include "base/fuzz/target.h"
#include "coordinator/standby/change_pieces.h"
#include "coordinator/standby/leadership.h"
#include "coordinator/store/schema.h"
#include "coordinator/store/sqlite.h"

namespace longhaul::coordinator {
namespace {

// A store in memory that is empty but for its tables; the same one before each change.
class FuzzedCopy {
 public:
  FuzzedCopy() : empty_(Must(sqlite::Database::Open(":memory:", kFlags))) {
    const std::string path =
        std::filesystem::temp_directory_path() / fmt::format("longhaul-fuzz-{}.db", ::getpid());
    {
      sqlite::Database store = Must(OpenOrCreateStore(path));
      if (!store.CopyTo(&empty_).ok()) std::abort();
    }
    std::filesystem::remove(path);
  }

  bool Replay(const v1::StoreChange& change) {
    sqlite::Database copy = Must(sqlite::Database::Open(":memory:", kFlags));
    if (!empty_.CopyTo(&copy).ok()) std::abort();
    const int64_t tables = Must(copy.QueryInt(kTables));
    const bool replayed = copy.Replay(change).ok();
    // The change is over, whole or not at all, and has made and opened nothing.
    if (!copy.Execute("BEGIN; ROLLBACK").ok() || Must(copy.QueryInt(kTables)) != tables ||
        Must(copy.QueryInt("SELECT count(*) FROM pragma_database_list")) != 1) {
      std::abort();
    }
    return replayed;
  }

 private:
  static constexpr int kFlags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
  static constexpr char kTables[] = "SELECT count(*) FROM sqlite_schema";
  template <class T>
  static T Must(StatusOr<T> value) {
    if (!value.ok()) std::abort();
    return *std::move(value);
  }
  sqlite::Database empty_;
};

}  // namespace
}  // namespace longhaul::coordinator

LH_FUZZ_TARGET(standby_changes) {
  using namespace longhaul::coordinator;  // NOLINT(google-build-using-namespace)
  static FuzzedCopy copy;
  ChangeJoiner joiner;
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  bool taken = ParseLeadership(rest).ok();
  while (!rest.empty()) {
    longhaul::v1::StoreChangePiece piece;
    const size_t bytes = static_cast<uint8_t>(rest[0]);
    piece.set_bytes(std::string(rest.substr(1, bytes)));
    rest.remove_prefix(1 + piece.bytes().size());
    piece.set_ends(rest.empty() || bytes < 255);
    const auto change = joiner.Add(piece);
    if (change.ok() && change->has_value() && copy.Replay(**change)) taken = true;
  }
  return taken;
}
