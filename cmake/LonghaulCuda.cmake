# The CUDA language, where there is an nvcc that can be used. Sets LONGHAUL_HAS_CUDA and says in one
# line what was found, or why CUDA is off.

set(LONGHAUL_CUDA AUTO CACHE STRING
  "GPU code: AUTO (when an nvcc of at least 13.0 is found), ON (an error without one), OFF")
set_property(CACHE LONGHAUL_CUDA PROPERTY STRINGS AUTO ON OFF)
set(LONGHAUL_NVCC_MINIMUM 13.0)

# The first nvcc that is new enough: in the variables NVCC and NVCC_VERSION, empty where there is
# none; then WHY says what is there instead.
function(lh_find_nvcc)
  if(CMAKE_CUDA_COMPILER)
    set(candidates "${CMAKE_CUDA_COMPILER}") # asked for, or found before
  else()
    file(GLOB from_pypi "${PROJECT_SOURCE_DIR}/.deps/venv/lib/python3*/site-packages/nvidia/cu13/bin/nvcc")
    find_program(in_path nvcc NO_CACHE)
    set(candidates $ENV{CUDACXX} ${in_path} /usr/local/cuda/bin/nvcc ${from_pypi})
  endif()
  set(why "no nvcc found")
  foreach(candidate IN LISTS candidates)
    execute_process(COMMAND "${candidate}" --version
      OUTPUT_VARIABLE text ERROR_QUIET RESULT_VARIABLE failed)
    if(NOT failed AND text MATCHES "release ([0-9]+\\.[0-9]+)")
      if(CMAKE_MATCH_1 VERSION_GREATER_EQUAL LONGHAUL_NVCC_MINIMUM)
        set(NVCC "${candidate}" PARENT_SCOPE)
        set(NVCC_VERSION "${CMAKE_MATCH_1}" PARENT_SCOPE)
        return()
      endif()
      set(why "${candidate} is ${CMAKE_MATCH_1}")
    endif()
  endforeach()
  set(NVCC "" PARENT_SCOPE)
  set(WHY "${why}; expected nvcc ${LONGHAUL_NVCC_MINIMUM} or newer (deploy/setup.sh --cuda-toolkit brings it)"
    PARENT_SCOPE)
endfunction()

set(LONGHAUL_HAS_CUDA OFF)
if(NOT LONGHAUL_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "LONGHAUL_CUDA: expected AUTO, ON or OFF, got '${LONGHAUL_CUDA}'")
elseif(LONGHAUL_CUDA STREQUAL OFF)
  message(STATUS "CUDA: off (LONGHAUL_CUDA=OFF)")
else()
  lh_find_nvcc()
  if(NVCC)
    set(ENV{CUDACXX} "${NVCC}")
    if(NOT CMAKE_CUDA_HOST_COMPILER)
      set(ENV{CUDAHOSTCXX} "${CMAKE_CXX_COMPILER}")
    endif()
    # Code for 8.0 and 9.0; newer devices compile the intermediate code of 9.0 when it is loaded. The environment's
    # CUDAARCHS says otherwise (.ci/run).
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES AND NOT DEFINED ENV{CUDAARCHS})
      set(CMAKE_CUDA_ARCHITECTURES 80-real 90)
    endif()
    # An nvcc that is there but fails (it refuses host compilers newer than itself) must not stop
    # those who did not ask for CUDA; those who did see its error.
    if(LONGHAUL_CUDA STREQUAL AUTO)
      if(NOT CMAKE_CUDA_COMPILER)
        unset(CMAKE_CUDA_COMPILER CACHE)
      endif()
      set(CMAKE_MESSAGE_LOG_LEVEL WARNING)
      include(CheckLanguage)
      check_language(CUDA)
      unset(CMAKE_MESSAGE_LOG_LEVEL)
      if(NOT CMAKE_CUDA_COMPILER)
        set(NVCC "")
        set(WHY "nvcc at $ENV{CUDACXX} does not work with ${CMAKE_CXX_COMPILER} (-DLONGHAUL_CUDA=ON shows how)")
      endif()
    endif()
  endif()
  if(NVCC)
    enable_language(CUDA)
    set(LONGHAUL_HAS_CUDA ON)
    message(STATUS "CUDA: on, nvcc ${NVCC_VERSION} at ${NVCC}")
  elseif(LONGHAUL_CUDA STREQUAL ON)
    message(FATAL_ERROR "CUDA: ${WHY}")
  else()
    message(STATUS "CUDA: off, ${WHY}")
  endif()
endif()

if(LONGHAUL_HAS_CUDA)
  set(CMAKE_CUDA_FLAGS_RELEASE "-O2")
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  set(CMAKE_CUDA_EXTENSIONS OFF)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION) # CMake 3.25 does not know that nvcc has it
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  endif()
  # -fmad=false, -ffp-contract=off: the same bytes as on the CPU (LonghaulTargets.cmake).
  target_compile_options(longhaul_compile_options INTERFACE
    "$<$<COMPILE_LANGUAGE:CUDA>:-fmad=false;--Werror=all-warnings;-Xcompiler=-Wall,-Wextra,-Werror,-ffp-contract=off>")
endif()
