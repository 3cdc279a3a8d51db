# Compiler settings shared by every target, and the functions that declare a floor.

find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(nlohmann_json REQUIRED)
pkg_check_modules(ISAL REQUIRED IMPORTED_TARGET libisal)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(HWLOC REQUIRED IMPORTED_TARGET hwloc)
pkg_check_modules(HWY REQUIRED IMPORTED_TARGET libhwy)

# selmcast_optional(<name> <what it is> PREFIX:MODULE...): cache variable SELMCAST_<name>, AUTO, ON or OFF;
# sets SELMCAST_HAVE_<name> and finds the modules.
function(selmcast_optional name what)
  set(SELMCAST_${name} AUTO CACHE STRING "${what}: AUTO (where its libraries are found), ON or OFF")
  set_property(CACHE SELMCAST_${name} PROPERTY STRINGS AUTO ON OFF)
  if(NOT SELMCAST_${name} MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "SELMCAST_${name}=${SELMCAST_${name}}: AUTO, ON or OFF")
  endif()
  set(have ON)
  if(SELMCAST_${name} STREQUAL "OFF")
    set(have OFF)
  endif()
  foreach(pair IN LISTS ARGN)
    string(REPLACE ":" ";" pair "${pair}")
    list(GET pair 0 prefix)
    list(GET pair 1 module)
    if(SELMCAST_${name} STREQUAL "ON")
      pkg_check_modules(${prefix} REQUIRED IMPORTED_TARGET ${module})
    elseif(have)
      pkg_check_modules(${prefix} IMPORTED_TARGET ${module})
      if(NOT ${prefix}_FOUND)
        set(have OFF)
      endif()
    endif()
  endforeach()
  if(NOT have)
    message(STATUS "Without ${what}")
  endif()
  set(SELMCAST_HAVE_${name} ${have} PARENT_SCOPE)
endfunction()
selmcast_optional(URING "transport uring" LIBURING:liburing)
selmcast_optional(VERBS "transport verbs" IBVERBS:libibverbs RDMACM:librdmacm)

set(SELMCAST_SANITIZE "" CACHE STRING "Value for -fsanitize, empty for none")

add_library(selmcast_options INTERFACE)
target_compile_features(selmcast_options INTERFACE cxx_std_20)
target_include_directories(selmcast_options INTERFACE ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/include)
target_compile_options(selmcast_options INTERFACE
  -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Werror
  -fno-strict-aliasing -fPIC
  # g++ 12 warns falsely about string concatenation (GCC bug 105651).
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
if(SELMCAST_SANITIZE)
  target_compile_options(selmcast_options INTERFACE
    -fsanitize=${SELMCAST_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(selmcast_options INTERFACE -fsanitize=${SELMCAST_SANITIZE})
  # The thread sanitizer knows no fences; g++ warns of each. Ours orders what a device reads, which
  # it does not see anyway (FramePort::set_tag()).
  if(SELMCAST_SANITIZE MATCHES "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(selmcast_options INTERFACE -Wno-tsan)
  endif()
endif()
if(SELMCAST_FUZZ)
  target_compile_options(selmcast_options INTERFACE -fsanitize=fuzzer-no-link)
endif()
target_link_libraries(selmcast_options INTERFACE Threads::Threads)
set(CMAKE_CXX_EXTENSIONS OFF)

option(SELMCAST_UNITY "Compile several sources at once where their headers take longer than they do" ON)

# selmcast_heavy_headers(<target> <headers>...): for a target whose sources are small beside what they
# include. Compiled together seven by seven, or each with precompiled headers where one source at a
# time matters more: for editing (preset dev) and for tools that read the compile commands.
function(selmcast_heavy_headers target)
  if(SELMCAST_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 7)
  else()
    target_precompile_headers(${target} PRIVATE ${ARGN})
  endif()
endfunction()

# selmcast_library(<name> <sources> [libraries...]): the static library selmcast_<name>.
function(selmcast_library name sources)
  add_library(selmcast_${name} STATIC ${sources})
  target_link_libraries(selmcast_${name} PUBLIC selmcast_options ${ARGN})
  # Of a small source the headers take as long as all the rest. (Preset dev compiles each alone and so
  # shows that it includes what it uses.)
  list(FILTER sources INCLUDE REGEX "\\.cc$")
  list(LENGTH sources count)
  if(SELMCAST_UNITY AND count GREATER 10)
    set_target_properties(selmcast_${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 12)
  endif()
endfunction()

# selmcast_folder(<name> [libraries...]): the library of the sources of this folder, without its sub-folders.
function(selmcast_folder name)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc ${CMAKE_CURRENT_SOURCE_DIR}/*.h)
  selmcast_library(${name} "${sources}" ${ARGN})
endfunction()

# selmcast_floor(<name> [libraries...]): the library of every source below this folder.
function(selmcast_floor name)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc ${CMAKE_CURRENT_SOURCE_DIR}/*.h)
  selmcast_library(${name} "${sources}" ${ARGN})
endfunction()
