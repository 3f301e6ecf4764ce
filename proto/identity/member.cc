#include "proto/identity/member.h"

#include <algorithm>
#include <array>

namespace longhaul {
namespace {

constexpr size_t kMaxWorkerIdBytes = 64;  // X.509's limit for a text of a subject
constexpr std::array kRoles = {Role::kWorker, Role::kUser, Role::kAdmin, Role::kWitness};

bool IsNameCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == '-';
}

}  // namespace

std::string_view ToString(Role role) {
  switch (role) {
    case Role::kWorker:
      return "worker";
    case Role::kUser:
      return "user";
    case Role::kAdmin:
      return "admin";
    case Role::kWitness:
      return "witness";
  }
  return "";
}

StatusOr<Role> ParseRole(std::string_view text) {
  for (const Role role : kRoles) {
    if (ToString(role) == text) return role;
  }
  return absl::InvalidArgumentError("expected a role: worker, user, admin or witness");
}

Status CheckMember(const Member& member) {
  if (member.name.empty() || member.name.size() > kMaxMemberNameBytes ||
      !std::ranges::all_of(member.name, IsNameCharacter)) {
    return InvalidArgument("expected a member's name of 1 to {} letters, digits, '.', '_' and '-'",
                           kMaxMemberNameBytes);
  }
  const bool is_worker = member.role == Role::kWorker;
  if (is_worker == member.worker_id.empty()) {
    return absl::InvalidArgumentError("expected an id of workers, and of workers alone");
  }
  if (member.worker_id.size() > kMaxWorkerIdBytes ||
      !std::ranges::all_of(member.worker_id, IsNameCharacter)) {
    return InvalidArgument("expected a worker's id of at most {} letters, digits, '.', '_' and '-'",
                           kMaxWorkerIdBytes);
  }
  return absl::OkStatus();
}

std::string MemberNameFrom(std::string_view text) {
  std::string name(text.substr(0, kMaxMemberNameBytes));
  for (char& c : name) {
    if (!IsNameCharacter(c)) c = '-';
  }
  return name.empty() ? "member" : name;
}

}  // namespace longhaul
