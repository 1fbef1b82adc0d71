# regard_room(NAME ROOMS...): a static library of src/NAME that may use the
# named rooms and no others.
function(regard_room name)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/*.cpp)
  if(NOT sources)
    set(sources ${CMAKE_SOURCE_DIR}/cmake/empty.cpp)
  endif()
  add_library(regard_${name} STATIC ${sources})
  add_library(regard::${name} ALIAS regard_${name})
  target_compile_features(regard_${name} PUBLIC cxx_std_20)
  set_target_properties(regard_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON EXPORT_NAME ${name})
  target_include_directories(regard_${name} PUBLIC $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include>
                                                   $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>
                                            PRIVATE ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(regard_${name} PRIVATE $<BUILD_INTERFACE:regard_flags>)
  foreach(room ${ARGN})
    target_link_libraries(regard_${name} PUBLIC regard_${room})
  endforeach()
endfunction()
