#include "base/remote/store.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <mutex>

#include "base/pending_file.h"
#include "base/remote/place.h"
#include "base/remote/read.h"

namespace longhaul::remote {
namespace {

Status CheckObject(const Address& address) {
  if (!address.IsFolder() || address.kind == Kind::kWeb) return absl::OkStatus();
  return InvalidArgument("expected the address of a file, got the folder {}",
                         ShownAddress(address));
}

http::ClientOptions ClientOptionsOf(const Settings& settings, const Options& options) {
  return {.hosts = options.hosts,
          .ca_file = settings.endpoints.ca_file,
          .connect_limit = options.connect_limit,
          .silence_limit = options.silence_limit};
}

}  // namespace

struct Store::Parts {
  Parts(const Settings& settings, const Options& options)
      : tools{.settings = settings,
              .options = options,
              .client = http::Client(ClientOptionsOf(settings, options))} {}

  const Place& PlaceOf(const Address& address) const {
    switch (address.kind) {
      case Kind::kHubModel:
      case Kind::kHubDataset:
        return *hub;
      case Kind::kS3:
        return *s3;
      case Kind::kGoogle:
        return *google;
      case Kind::kWeb:
        break;
    }
    return *web;
  }

  std::unique_ptr<const Place> MaybeSigned(std::unique_ptr<const Place> own) const {
    if (!tools.options.ask_signed) return own;
    return MakeSigned(tools, std::move(own));
  }

  const Tools tools;
  const std::unique_ptr<const Place> hub = MaybeSigned(MakeHub(tools));
  const std::unique_ptr<const Place> s3 = MaybeSigned(MakeBuckets(Kind::kS3, tools));
  const std::unique_ptr<const Place> google = MaybeSigned(MakeBuckets(Kind::kGoogle, tools));
  const std::unique_ptr<const Place> web = MakeWeb(tools);
};

Store::Store(const Settings& settings, const Options& options)
    : parts_(std::make_unique<const Parts>(settings, options)) {}
Store::~Store() = default;

StatusOr<Listing> Store::List(const Address& folder, const http::Call& call) const {
  LH_ASSIGN_OR_RETURN(Listing listing, parts_->PlaceOf(folder).List(folder, call));
  // Programs write files under these names, so a name must not lead out of a folder.
  for (const Entry& entry : listing.entries) {
    if (Inside(listing.at, entry.path).ok()) continue;
    return FailedPrecondition("{}: {} cannot be the name of a file; list another folder",
                              Doing("cannot list", folder), entry.path);
  }
  std::ranges::sort(listing.entries, {}, &Entry::path);
  return listing;
}

StatusOr<Version> Store::Look(const Address& object, const http::Call& call) const {
  LH_RETURN_IF_ERROR(CheckObject(object));
  Version version;
  LH_RETURN_IF_ERROR(parts_->tools.Repeat(call, [&]() -> Status {
    LH_ASSIGN_OR_RETURN(version, parts_->PlaceOf(object).Look(object, call));
    return absl::OkStatus();
  }));
  return version;
}

Status Store::Read(const Address& object, const Version& version, uint64_t first, uint64_t count,
                   const Take& take, const http::Call& call) const {
  LH_RETURN_IF_ERROR(CheckObject(object));
  return ReadRanges(parts_->PlaceOf(object), parts_->tools, object, version, first, count, take,
                    call);
}

Status Store::ReadInto(const Address& object, const Version& version, uint64_t first,
                       std::span<std::byte> into, const http::Call& call) const {
  return Read(
      object, version, first, into.size(),
      [&](uint64_t offset, std::span<const std::byte> piece) {
        std::memcpy(into.data() + (offset - first), piece.data(), piece.size());
        return absl::OkStatus();
      },
      call);
}

StatusOr<std::string> Store::ReadAll(const Address& object, uint64_t limit,
                                     const http::Call& call) const {
  // A file that is written over and over again is not waited for.
  constexpr int kAttempts = 3;
  for (int attempt = 1;; ++attempt) {
    LH_ASSIGN_OR_RETURN(const Version version, Look(object, call));
    if (version.bytes > limit) {
      return FailedPrecondition("{}: expected at most {} bytes, it has {}",
                                Doing("cannot read", object), limit, version.bytes);
    }
    std::string text(version.bytes, '\0');
    const Status status =
        ReadInto(object, version, 0, std::as_writable_bytes(std::span(text)), call);
    if (status.ok()) return text;
    if (!absl::IsAborted(status) || attempt == kAttempts) return status;
  }
}

Status Store::ReadToFile(const Address& object, const Version& version, const std::string& path,
                         const http::Call& call) const {
  LH_ASSIGN_OR_RETURN(const auto file, PendingFile::Create(path));
  LH_RETURN_IF_ERROR(file->Extend(version.bytes));
  std::mutex mutex;
  LH_RETURN_IF_ERROR(Read(
      object, version, 0, version.bytes,
      [&](uint64_t offset, std::span<const std::byte> piece) {
        const std::lock_guard lock(mutex);
        return file->Overwrite(offset, piece);
      },
      call));
  return file->Publish();
}

StatusOr<Version> Store::Write(const Address& object, std::span<const std::byte> bytes,
                               const http::Call& call) const {
  LH_RETURN_IF_ERROR(CheckObject(object));
  return parts_->PlaceOf(object).Write(object, bytes, call);
}

Status Store::Delete(const Address& object, const http::Call& call) const {
  LH_RETURN_IF_ERROR(CheckObject(object));
  return parts_->PlaceOf(object).Delete(object, call);
}

StatusOr<bool> Store::PrepareWrites(const Address& folder, const http::Call& call) const {
  return parts_->PlaceOf(folder).PrepareWrites(folder, call);
}

Status Store::WriteAll(const Address& folder, const FolderChange& change,
                       const http::Call& call) const {
  return parts_->PlaceOf(folder).WriteAll(folder, change, call);
}

StatusOr<SignedAddress> Store::SignRead(const Address& object, absl::Duration validity,
                                        const http::Call& call) const {
  LH_RETURN_IF_ERROR(CheckObject(object));
  return parts_->PlaceOf(object).SignRead(object, validity, call);
}

StatusOr<SignedAddress> Store::SignWrite(const Address& object, absl::Duration validity) const {
  LH_RETURN_IF_ERROR(CheckObject(object));
  return parts_->PlaceOf(object).SignWrite(object, validity);
}

}  // namespace longhaul::remote
