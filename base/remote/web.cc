// Files of web servers. An address may be signed, and then is good for one method alone: so sizes
// are asked with GET.
#include <fmt/format.h>

#include "base/remote/place.h"

namespace longhaul::remote {
namespace {

class Web final : public Place {
 public:
  explicit Web(const Tools& tools) : tools_(tools) {}

  StatusOr<Listing> List(const Address& folder, const http::Call&) const override {
    return InvalidArgument("{}: web servers have no lists; name a file",
                           Doing("cannot list", folder));
  }

  StatusOr<Version> Look(const Address& object, const http::Call& call) const override {
    return LookByGet(tools_, {.url = ToString(object)}, object, call);
  }

  StatusOr<Source> Find(const Address& object, const Version& version,
                        const http::Call&) const override {
    return Source{.request = {.url = ToString(object)}, .tag = version.tag};
  }

  bool Forget(const Address&) const override { return false; }

  StatusOr<Version> Write(const Address& object, std::span<const std::byte> bytes,
                          const http::Call& call) const override {
    Version version{.bytes = bytes.size()};
    const http::Request request{.method = "PUT", .url = ToString(object), .body = bytes};
    LH_RETURN_IF_ERROR(tools_.Repeat(call, [&]() -> Status {
      LH_ASSIGN_OR_RETURN(const http::Answer answer, tools_.client.Send(request, call));
      if (!answer.ok()) return ErrorOf(answer, object, "cannot write");
      version.tag = TagOf(answer);
      return absl::OkStatus();
    }));
    return version;
  }

  StatusOr<SignedAddress> SignRead(const Address& object, absl::Duration,
                                   const http::Call&) const override {
    return SignedAddress{.url = ToString(object), .expires = std::nullopt};
  }
  StatusOr<SignedAddress> SignWrite(const Address& object, absl::Duration) const override {
    return InvalidArgument("{}: only s3:// and gs:// addresses can be signed for writing",
                           Doing("cannot sign", object));
  }

 private:
  const Tools& tools_;
};

}  // namespace

StatusOr<Version> LookByGet(const Tools& tools, http::Request request, const Address& object,
                            const http::Call& call) {
  const std::string doing = Doing("cannot look at", object);
  Version version;
  bool has_seen = false;
  request.headers.emplace_back("Range: bytes=0-0");
  const http::Receiver receiver{.begin = [&](const http::Answer& answer) -> Status {
                                  const auto whole = WholeSizeOf(answer);
                                  if (answer.code == 206 && whole) {
                                    version = {.bytes = *whole, .tag = TagOf(answer)};
                                  } else {
                                    LH_ASSIGN_OR_RETURN(version.bytes, LengthOf(answer, doing));
                                    version.tag = TagOf(answer);
                                  }
                                  has_seen = true;
                                  // A server without ranges sends the whole file, which nobody
                                  // wants.
                                  return answer.code == 206 ? absl::OkStatus()
                                                            : absl::CancelledError("seen enough");
                                },
                                .take = [](std::string_view) { return absl::OkStatus(); }};
  const StatusOr<http::Answer> answer = tools.client.Send(request, call, &receiver);
  if (has_seen) return version;
  LH_RETURN_IF_ERROR(answer.status());
  if (answer->code == 416 && WholeSizeOf(*answer) == 0) {
    return Version{.bytes = 0, .tag = TagOf(*answer)};
  }
  return ErrorOf(*answer, object, "cannot look at");
}

std::unique_ptr<Place> MakeWeb(const Tools& tools) {
  return std::make_unique<Web>(tools);
}

}  // namespace longhaul::remote
