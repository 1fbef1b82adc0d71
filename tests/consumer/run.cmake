# Installs the build into an empty folder, then configures, builds and runs the
# consumer against it, once linked with everything.
set(prefix ${BUILD}/consumer/prefix)
file(REMOVE_RECURSE ${BUILD}/consumer)

function(step)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "${ARGN}\nfailed:\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

step(${CMAKE_COMMAND} --install ${BUILD} --prefix ${prefix})
step(${CMAKE_COMMAND} -S ${SOURCE} -B ${BUILD}/consumer/build -DCMAKE_PREFIX_PATH=${prefix} -DCMAKE_CXX_COMPILER=${COMPILER})
step(${CMAKE_COMMAND} --build ${BUILD}/consumer/build)
step(${BUILD}/consumer/build/consumer)
# Weights of the second token: 1 / (1 + e^(1/sqrt 2)) and the rest.
if(NOT output MATCHES "token 1 attends 0.330 0.670 0.000")
  message(FATAL_ERROR "the consumer printed:\n${output}")
endif()
step(${prefix}/bin/regard info)
if(EXISTS ${prefix}/share/regard/models/phonemes/model.json)
  step(${CMAKE_COMMAND} -E chdir ${BUILD}/consumer ${prefix}/bin/regard run thought)
endif()
