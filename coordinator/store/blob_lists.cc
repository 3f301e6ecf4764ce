#include "coordinator/store/blob_lists.h"

#include <fstream>
#include <utility>

#include "base/log.h"
#include "base/units.h"

namespace longhaul::coordinator {

StatusOr<ListNames> BlobLists::Read(const BlobStore& blobs, const std::string& list) {
  LH_ASSIGN_OR_RETURN(const BlobReader blob, blobs.OpenBlob(list));
  if (blob.size() > kMostListBytes + kMostListFileBytes) {
    return InvalidArgument("the list {} has {}, expected at most {}", list,
                           FormatBytes(blob.size()),
                           FormatBytes(kMostListBytes + kMostListFileBytes));
  }
  std::ifstream file(blobs.PathOf(list), std::ios::binary);
  return ReadListNames(file);
}

Status BlobLists::Add(const std::string& list, const ListNames& names) {
  return index_->AddList(list, names).status();
}

StatusOr<int64_t> BlobLists::NumberOf(const std::string& list) {
  LH_ASSIGN_OR_RETURN(const int64_t known, index_->NumberOf(list));
  if (known != 0) return known;
  std::shared_ptr<std::mutex> of_list;
  {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<std::mutex>& one = reading_[list];
    if (one == nullptr) one = std::make_shared<std::mutex>();
    of_list = one;
  }
  StatusOr<int64_t> number = 0;
  {
    const std::lock_guard lock(*of_list);
    number = index_->NumberOf(list);  // another thread may have read it meanwhile
    if (number.ok() && *number == 0) {
      StatusOr<ListNames> names = Read(list);
      number = names.ok() ? index_->AddList(list, *names) : StatusOr<int64_t>(names.status());
    }
  }
  const std::lock_guard lock(mutex_);
  if (of_list.use_count() == 2) reading_.erase(list);  // nobody else waits for it
  return number;
}

std::function<bool(const std::string& sha256)> BlobLists::NamedByAny(
    const std::set<std::string>& lists) {
  std::set<int64_t> numbers;
  for (const std::string& list : lists) {
    if (const StatusOr<int64_t> number = NumberOf(list); number.ok()) numbers.insert(*number);
  }
  return [this, numbers = std::move(numbers)](const std::string& sha256) {
    const StatusOr<bool> named = index_->NamesBlob(numbers, sha256);
    if (!named.ok()) LogWarning("the index of blobs: {}", Message(named.status()));
    return named.ok() && *named;
  };
}

bool BlobLists::NamesBlob(const std::vector<std::string>& lists, const std::string& sha256) {
  return NamedByAny({lists.begin(), lists.end()})(sha256);
}

StatusOr<bool> BlobLists::NamesObject(const std::string& list, const std::string& address) {
  LH_ASSIGN_OR_RETURN(const int64_t number, NumberOf(list));
  return index_->NamesObject({number}, address);
}

}  // namespace longhaul::coordinator
